# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # Tables for a terminal. Colour only on a terminal, and never under NO_COLOR.
      class Text
        COLOURS = {noise: 2, ahead: 32, behind: 33, error: 31}.freeze
        private_constant :COLOURS

        # @param colour [Boolean]
        def initialize(colour: $stdout.tty? && ENV["NO_COLOR"].to_s.empty?)
          @colour = colour
        end

        # @param title [String]
        # @param tables [Array<Table>]
        # @param facts [Array<String>] about the run
        # @return [String]
        def render(title, tables, facts)
          [title, *tables.map { |table| table(table) }, facts.join("\n")].join("\n\n") << "\n"
        end

        private

        def table(table)
          widths = [table.columns, *table.rows].transpose.map { |cells| cells.map { |cell| cell.to_s.size }.max }
          lines = [table.columns, *table.rows].map { |row| line(row, widths, table.prose) }
          lines.insert(1, widths.map { |width| "─" * width }.join("  "))
          [table.title, *lines, *table.notes].join("\n")
        end

        def line(row, widths, prose)
          row.zip(widths).each_with_index.map do |(cell, width), index|
            paint((index.zero? || prose) ? cell.to_s.ljust(width) : cell.to_s.rjust(width), cell)
          end.join("  ").rstrip
        end

        def paint(text, cell)
          code = @colour && cell.is_a?(Entry) && COLOURS[cell.style]
          code ? "\e[#{code}m#{text}\e[0m" : text
        end
      end
    end
  end
end

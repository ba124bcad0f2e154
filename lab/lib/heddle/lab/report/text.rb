# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # Tables for a terminal. Colour only on a terminal, and never under NO_COLOR. A table that is wider than the
      # terminal is shown in parts, each with the rows' names.
      class Text
        COLOURS = {noise: 2, ahead: 32, behind: 33, error: 31}.freeze
        GAP = "  "
        private_constant :COLOURS, :GAP

        # @param output [IO]
        # @return [Text] for what the output is: a terminal of some width, or a file
        def self.for(output)
          return new unless output.tty?

          new(colour: ENV["NO_COLOR"].to_s.empty?, width: Terminal.width(output))
        end

        # @param colour [Boolean]
        # @param width [Integer, nil] the most characters of a table's line; nil for any number
        def initialize(colour: false, width: nil)
          @colour = colour
          @width = width
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
          rows = [table.columns, *table.rows]
          widths = rows.transpose.map { |cells| cells.map { |cell| cell.to_s.size }.max }
          [table.title, *parts(widths).map { |part| part(rows, widths, part, table.prose) }.join("\n\n"), *table.notes]
            .join("\n")
        end

        # The columns' numbers, by the part in which they stand; the first column stands in each.
        def parts(widths)
          parts = [[0]]
          (1...widths.size).each do |column|
            parts << [0] if parts.last.size > 1 && wide?(widths.values_at(*parts.last, column))
            parts.last << column
          end
          parts
        end

        def wide?(widths) = @width && widths.sum + GAP.size * (widths.size - 1) > @width

        def part(rows, widths, columns, prose)
          widths = widths.values_at(*columns)
          lines = rows.map { |row| line(row.values_at(*columns), widths, prose) }
          lines.insert(1, widths.map { |width| "─" * width }.join(GAP)).join("\n")
        end

        def line(row, widths, prose)
          row.zip(widths).each_with_index.map do |(cell, width), index|
            paint((index.zero? || prose) ? cell.to_s.ljust(width) : cell.to_s.rjust(width), cell)
          end.join(GAP).rstrip
        end

        def paint(text, cell)
          code = @colour && cell.is_a?(Entry) && COLOURS[cell.style]
          code ? "\e[#{code}m#{text}\e[0m" : text
        end
      end
    end
  end
end

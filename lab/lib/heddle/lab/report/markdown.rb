# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # The report as it is committed.
      module Markdown
        module_function

        # @param title [String]
        # @param tables [Array<Table>]
        # @param facts [Array<String>] about the run
        # @param graphs [Hash{String => String}] caption => file name
        # @return [String]
        def render(title, tables, facts, graphs: {})
          ["# #{title}", *tables.map { |table| table(table) },
            *graphs.map { |caption, file| "![#{caption}](#{file})" },
            "## The run\n\n" + facts.map { |fact| "- #{fact}" }.join("\n")].join("\n\n") << "\n"
        end

        # @param table [Table]
        # @return [String]
        def table(table)
          rule = table.columns.each_index.map { |index| (index.zero? || table.prose) ? ":--" : "--:" }
          rows = [table.columns, rule, *table.rows].map { |row| "| #{row.map { |cell| escape(cell) }.join(" | ")} |" }
          ["## #{table.title}", rows.join("\n"), *table.notes].join("\n\n")
        end

        # @param cell [String, Entry]
        # @return [String]
        def escape(cell) = cell.to_s.gsub("|", "\\|")
      end
    end
  end
end

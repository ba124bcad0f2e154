# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # Every round as a line (RFC 4180): the data, not the summary.
      module CSV
        FIXED = %w[bench case model round twin error].freeze
        private_constant :FIXED

        module_function

        # @param record [Record]
        # @return [String]
        def render(record)
          measures = record.rounds.flat_map { |round| round.measures.to_h.keys }.uniq
          lines = record.rounds.map do |round|
            [record.header["bench"], round.case, round.model, round.round, round.twin, round.error,
              *measures.map { |key| round.measures.to_h[key] }]
          end
          [FIXED + measures, *lines].map { |line| line.map { |field| quote(field) }.join(",") << "\n" }.join
        end

        # @param field [Object]
        # @return [String]
        def quote(field)
          text = field.to_s
          text.match?(/[",\r\n]/) ? "\"#{text.gsub("\"", "\"\"")}\"" : text
        end
      end
    end
  end
end

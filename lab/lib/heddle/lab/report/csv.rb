# frozen_string_literal: true

require "strscan"

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
          generate([FIXED + measures, *lines])
        end

        # @param lines [Array<Array<Object>>]
        # @return [String]
        def generate(lines) = lines.map { |line| line.map { |field| quote(field) }.join(",") << "\n" }.join

        # Takes the byte order mark and either kind of newline, as spreadsheets write them.
        # @param text [String]
        # @return [Array<Array<String>>] lines that are not empty
        # @raise [Error] when a quotation does not end
        def parse(text)
          text = text.dup.force_encoding(Encoding::UTF_8).scrub.delete_prefix("\uFEFF")
          lines, fields = [], []
          scanner = StringScanner.new(text)
          until scanner.eos?
            fields << (scanner.skip(/"/) ? quoted(scanner) : scanner.scan(/[^,\r\n]*/))
            next if scanner.skip(/,(?!\z)/)

            fields << "" if scanner.skip(/,\z/)
            scanner.skip(/\r?\n|\r|[^,\r\n]+/)
            lines << fields if fields.any? { |field| !field.empty? }
            fields = []
          end
          lines
        end

        # The text between an opening quotation mark and its closing one.
        def quoted(scanner)
          text = scanner.scan(/(?:[^"]|"")*/)
          scanner.skip(/"/) or raise Error, "a quotation in the CSV does not end: #{text[0, 40].inspect}"
          text.gsub('""', '"')
        end
        private_class_method :quoted

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

# frozen_string_literal: true

require "json"

module Heddle
  module Lab
    # A whole run: its command line, its environment, and every round as measured. `lab/schema/record.json` describes
    # the JSON.
    class Record
      SCHEMA = "heddle-bench/1"
      # As in the schema.
      REQUIRED = %w[bench argv started_at seed rounds_asked options environment cases models missing rounds].freeze
      private_constant :REQUIRED

      # The result of one cell.
      # @!attribute round [Integer]
      # @!attribute case [String] the case's name
      # @!attribute model [String] the model's name
      # @!attribute twin [Boolean]
      # @!attribute measures [Hash{String => Object}, nil]
      # @!attribute error [String, nil] what went wrong; then there are no measures
      # @!attribute late [Boolean, nil] whether it used up its time limit
      Round = Struct.new(:round, :case, :model, :twin, :measures, :error, :late, keyword_init: true)

      # @return [Hash{String => Object}] bench, argv, seed, rounds asked, started_at, environment, models and so on
      attr_reader :header
      # @return [Array<Round>]
      attr_reader :rounds

      # @param text [String] as {#to_json} wrote it
      # @return [Record]
      # @raise [Error] when the text is not a record
      def self.parse(text)
        whole = JSON.parse(text)
        unless whole.is_a?(Hash) && whole["schema"] == SCHEMA
          raise Error, "this is not a record of heddle bench (schema #{SCHEMA})"
        end

        missing = REQUIRED - whole.keys
        raise Error, "this record of heddle bench is incomplete: it lacks #{missing.join(", ")}" if missing.any?

        new(whole.except("schema", "rounds")).tap do |record|
          whole["rounds"].each { |round| record.rounds << Round.new(**round.transform_keys(&:to_sym)) }
        end
      rescue JSON::ParserError => error
        raise Error, "this is not JSON: #{error.message.lines.first&.strip}"
      end

      # @param file [String]
      # @return [Record]
      # @raise [Error] naming the file, when it cannot be read or is not a record
      def self.read(file) = Error.in(file) { parse(File.read(file)) }

      # @param header [Hash{String => Object}]
      def initialize(header)
        @header = header
        @rounds = []
      end

      # @return [Boolean] whether cells are missing, because the run did not come to its end
      def interrupted? = @header["interrupted"] || false

      # @return [Boolean] whether every cell was measured and every answer right
      def clean? = failed.empty?

      # @return [Array<String>] names of the models with a cell that was not measured, or with a wrong answer
      def failed = rounds.select { |round| round.error || round.measures["errors"].to_i.positive? }.map(&:model).uniq

      # A line for each entry of the header, and for each cell.
      #
      # @return [String]
      def to_json(*)
        entries = {"schema" => SCHEMA, **header, "rounds" => rounds.map { |round| round.to_h.compact }}
        "{#{entries.map { |name, value| "#{name.to_json}: #{lines(value)}" }.join(",\n")}}\n"
      end

      private

      def lines(value)
        return value.to_json unless value.is_a?(Array) && value.first.is_a?(Hash)

        "[\n#{value.map(&:to_json).join(",\n")}\n]"
      end
    end
  end
end

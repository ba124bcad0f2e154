# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # The options that a connection to SQLite has besides those of every database.
      #
      # @api private
      module OptionChecks
        JOURNAL_MODES = %i[wal delete truncate persist memory off].freeze
        SYNCHRONOUS = %i[off normal full extra].freeze
        TRANSACTIONS = %i[immediate deferred exclusive].freeze
        # As Rails 8 sets them.
        DEFAULTS = {read_only: false, create: true, immutable: false, journal_mode: :wal, synchronous: :normal,
                    foreign_keys: true, busy_timeout: 5.0, transaction: :immediate, time_zone: :utc, extensions: [],
                    pragmas: {}, statement_cache: :always}.freeze
        private_constant :JOURNAL_MODES, :SYNCHRONOUS, :TRANSACTIONS

        class << self
          # @return [Hash{String => String}] pragmas and their values
          def pragmas(name, value)
            fine = value.is_a?(Hash) && value.all? do |key, setting|
              key.to_s.match?(/\A[a-z_]+\z/i) && setting.to_s.match?(/\A-?[\w.]+\z/)
            end
            Options.wrong(name, "a Hash of pragmas and their values, which are words or numbers", value) unless fine

            value.to_h { |key, setting| [key.to_s, setting.to_s] }
          end

          # @return [Array<String>] paths
          def extensions(name, value)
            list = value.is_a?(String) ? value.split(",") : value
            fine = list.is_a?(Array) && list.all? { |path| path.is_a?(String) && !path.empty? && !path.include?("\0") }
            fine ? list : Options.wrong(name, "the path of an extension, or an Array of paths", value)
          end

          # @return [String]
          def database(name, value)
            value = value.to_path if value.respond_to?(:to_path)
            return value if value.is_a?(String) && !value.empty? && !value.include?("\0")

            Options.wrong(name, "the path of a file, or #{Location::MEMORY}", value)
          end

          private

          def word(words)
            ->(name, value) { Options.one_of(name, value.to_s.downcase, words) }
          end
        end

        ALL = {
          database: method(:database), read_only: :boolean, create: :boolean, immutable: :boolean,
          journal_mode: word(JOURNAL_MODES), synchronous: word(SYNCHRONOUS), foreign_keys: :boolean,
          busy_timeout: :seconds, transaction: word(TRANSACTIONS), time_zone: :time_zone,
          extensions: method(:extensions), pragmas: method(:pragmas)
        }.freeze
      end
      private_constant :OptionChecks
    end
  end
end

# frozen_string_literal: true

require "sequel"

module Sequel
  # <tt>Sequel.connect(adapter: "heddle", database_type: "mysql", host: …)</tt> is the adapter +heddle-mysql+.
  module HeddleAny
    ADAPTERS = {"mysql" => "heddle-mysql", "mariadb" => "heddle-mysql", "postgresql" => "heddle-postgresql",
                "postgres" => "heddle-postgresql", "sqlite" => "heddle-sqlite"}.freeze
    private_constant :ADAPTERS

    # Stands for the adapters of the databases.
    class Database < Sequel::Database
      set_adapter_scheme :heddle

      # @param opts [Hash] those of Sequel.connect, with :database_type
      # @return [Sequel::Database] of that database's own adapter
      # @raise [Sequel::Error] for another database
      def self.new(opts = OPTS)
        name = ADAPTERS.fetch(opts[:database_type].to_s) do
          raise Error, "the adapter heddle needs database_type:, which is one of #{ADAPTERS.keys.join(", ")}, " \
            "not #{opts[:database_type].inspect}"
        end
        Sequel::Database.adapter_class(name).new(opts.merge(adapter: name))
      end
    end
  end
end

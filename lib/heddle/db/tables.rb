# frozen_string_literal: true

require_relative "virtual_statement"

module Heddle
  module DB
    # Which tables a database has.
    module Tables
      OF_SCHEMA = "from information_schema.tables where "
      MYSQL = OF_SCHEMA + "table_schema = coalesce(?, database())"
      # Without a schema those that are found without its name.
      POSTGRESQL = OF_SCHEMA + "(table_schema::text = ?::text or " \
        "(?::text is null and table_schema::name = any(current_schemas(false))))"
      LIST = VirtualStatement.new({mysql: "select table_name #{MYSQL} order by 1",
        postgresql: "select distinct table_name::text #{POSTGRESQL} order by 1"}, nil)
      COUNT = VirtualStatement.new({mysql: "select count(*) #{MYSQL} and table_name = ?",
        postgresql: "select count(*) #{POSTGRESQL} and table_name::text = ?::text"}, nil)
      private_constant :OF_SCHEMA, :MYSQL, :POSTGRESQL, :LIST, :COUNT

      # @param schema [String, nil] MySQL: a database, nil for the one in use; PostgreSQL: a schema, nil for all of the
      #   search path
      # @return [Array<String>] names of tables and views that this user may see, without temporary tables
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def list_tables(schema: nil)
        query_list(LIST, *schemas(schema))
      end

      # @param name [String, Symbol] as the server has it: PostgreSQL makes names without quotes lower case
      # @param schema [String, nil] see {#list_tables}
      # @return [Boolean] whether {#list_tables} has this table or view
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def table_exists?(name, schema: nil)
        query_value(COUNT, *schemas(schema), name.to_s) > 0
      end

      private

      def schemas(schema)
        [schema] * ((database_type == :postgresql) ? 2 : 1)
      end
    end
    private_constant :Tables
  end
end

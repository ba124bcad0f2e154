# frozen_string_literal: true

module Heddle
  module DB
    # Which tables a database has.
    module Tables
      # @param schema [String, nil] the part of the database whose tables are meant, as its SQL calls it: a database of
      #   MySQL's, a schema of PostgreSQL's. nil: those that a statement finds without its name
      # @return [Array<String>] names of tables and views that this user may see, without temporary tables
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def list_tables(schema: nil)
        tables(schema, nil).rows.map(&:first)
      end

      # @param name [String, Symbol] as the server has it: some databases make names without quotes lower case
      # @param schema [String, nil] see {#list_tables}
      # @return [Boolean] whether {#list_tables} has this table or view
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def table_exists?(name, schema: nil)
        !tables(schema, name.to_s).empty?
      end

      private

      def tables(schema, name)
        watched(what = name ? "look for a table" : "list the tables") do
          exchange do
            check_transaction(:plain, what)
            checked(@driver.tables(schema, name), what)
          end
        end
      end
    end
    private_constant :Tables
  end
end

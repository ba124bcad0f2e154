# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # What the driver says of itself and of its database (SQLGetInfo), asked once a connection.
      #
      # @api private
      class Server
        # SQL_TXN_ISOLATION_OPTION and SQL_ATTR_TXN_ISOLATION.
        ISOLATIONS = {read_uncommitted: 1, read_committed: 2, repeatable_read: 4, serializable: 8}.freeze
        # SQL_TXN_CAPABLE.
        NO_TRANSACTIONS = 0
        DDL_COMMITS = 3
        TYPES = {/mariadb/i => :mariadb, /mysql/i => :mysql, /postgres/i => :postgresql, /sqlite/i => :sqlite}.freeze
        FAMILIES = {/mariadb|mysql/i => :mysql, /postgres/i => :postgresql, /sqlite/i => :sqlite,
                    /sql server|sybase|adaptive server/i => :sqlserver}.freeze
        private_constant :ISOLATIONS, :NO_TRANSACTIONS, :DDL_COMMITS, :TYPES, :FAMILIES

        # @return [String] its name and version; the driver's file; the quote of identifiers; the server's name; what
        #   makes % and _ in a pattern of names characters like others
        attr_reader :name, :version, :driver, :quote, :address, :escape

        # @return [Symbol] :mysql, :mariadb, :postgresql, :sqlite, or :odbc for any other
        attr_reader :type

        # @return [Symbol, nil] whose SQL and numbers of errors it has: :mysql, :postgresql, :sqlite, :sqlserver
        attr_reader :family

        # @param abilities [Array] see Client#abilities
        def initialize(abilities)
          (@name, @version, @driver, @quote, @address, @escape), numbers = abilities
          @isolations, _, @transactions, @activities = numbers
          @type = TYPES.find { |pattern, _| pattern.match?(@name) }&.last || :odbc
          @family = FAMILIES.find { |pattern, _| pattern.match?(@name) }&.last
        end

        # @return [Boolean] whether another statement may run while rows of one are to be fetched
        def several_statements? = @activities != 1

        # @return [Boolean] whether the driver itself looks for several statements in a text. MariaDB's (3.1.15) does,
        #   and crashes when it is asked for the result behind that of a CREATE PROCEDURE with several in its body
        def splits_routines? = driver.include?("maodbc")

        # @return [Boolean] whether a CREATE, ALTER or DROP ends its transaction
        def ddl_commits? = @transactions == DDL_COMMITS

        # @raise [ArgumentError] when it has no transactions
        def need_transactions
          return unless @transactions == NO_TRANSACTIONS

          raise ArgumentError, "#{name} has no transactions, says its driver #{driver}"
        end

        # @param isolation [Symbol, nil]
        # @return [Integer] ODBC's number; 0 for nil
        # @raise [ArgumentError] for an unknown level, and for one that the database does not have
        def isolation(isolation)
          return 0 if isolation.nil?

          number = ISOLATIONS[isolation]
          return number if number && @isolations & number != 0

          known = ISOLATIONS.select { |_, bit| @isolations & bit != 0 }.keys
          raise ArgumentError, "isolation: of #{name} must be one of #{known.map(&:inspect).join(", ")}, " \
            "not #{isolation.inspect}"
        end

        # @return [Boolean] whether the tables of one server lie in catalogs (MySQL's databases) and in no schemas
        def schemas_are_catalogs? = family == :mysql

        # @return [String, nil] a query for the schema of names without one
        def current_schema
          case family
          when :mysql then "select database()"
          when :postgresql then "select current_schema()::varchar"
          when :sqlserver then "select schema_name()"
          end
        end

        # @return [Boolean] whether no text has a NUL in it, and the driver would silently end it there
        def texts_end_at_nul? = family == :postgresql || family == :sqlite

        # @return [String, nil] which types SQLTables is asked for: PostgreSQL's driver leaves system tables out unless
        #   they are named, MariaDB's finds nothing then
        def table_types = (family == :postgresql) ? "TABLE,VIEW,SYSTEM TABLE,MATERIALIZED VIEW,FOREIGN TABLE" : nil

        # @return [String] the statement that makes a transaction read-only: the SQL standard's, but for PostgreSQL,
        #   whose driver runs a SET before it begins the transaction
        def read_only
          return "SET TRANSACTION READ ONLY" unless family == :postgresql

          "select set_config('transaction_read_only', 'on', true)"
        end

        # @return [Hash{Symbol => String, nil}] the statements of savepoints, with %s for the name
        def savepoints
          if family == :sqlserver
            {begin: "SAVE TRANSACTION %s", release: nil, rollback: "ROLLBACK TRANSACTION %s"}
          else
            {begin: "SAVEPOINT %s", release: "RELEASE SAVEPOINT %s", rollback: "ROLLBACK TO SAVEPOINT %s"}
          end
        end
      end
    end
  end
end

# frozen_string_literal: true

require_relative "heddle/common"
require_relative "heddle/mysql_casts"
require "heddle/db/mysql"
require "sequel/adapters/shared/mysql"
require "sequel/adapters/utils/stored_procedures"

module Sequel
  # Sequel's adapter for MySQL and MariaDB on Heddle::DB.
  #
  #   DB = Sequel.connect("heddle-mysql://user:password@127.0.0.1/shop", max_connections: 10, query_timeout: 2)
  module HeddleMySQL
    # What Sequel.connect takes besides Sequel's own options for MySQL (+timeout+ is the server's wait_timeout,
    # +sql_mode+, +auto_is_null+ …) and the common ones of Heddle::DB:
    #
    # - +query_timeout+: seconds that a statement may take, with all its rows
    # - +encoding+ or +charset+: see +charset+ of Heddle::DB.connect
    # - +clear_password+, +server_public_key+: see Heddle::DB.connect
    #
    # The time zone of the session stays the server's. DATETIME columns are read as Sequel's +timezone+ says.
    class Database < Sequel::Database
      include Sequel::MySQL::DatabaseMethods
      include HeddleAdapter::DatabaseMethods

      set_adapter_scheme :"heddle-mysql"

      # @return [Boolean] whether TINYINT(1) and BIT(1) are booleans
      attr_accessor :convert_tinyint_to_bool

      # @param conn [Heddle::DB::Connection]
      def disconnect_connection(conn)
        @heddle_ended.delete(conn)
        super
      end

      # Opens a connection; for the pool.
      #
      # @param server [Symbol, Hash] the shard
      # @return [Heddle::DB::Connection]
      def connect(server)
        opts = server_opts(server)
        charset = opts[:encoding] || opts[:charset]
        own = opts.slice(:clear_password, :server_public_key)
        own[:charset] = charset if charset
        conn = heddle_connect("mysql:", opts, found_rows: true, **own) { |settings| {**settings, session: false} }
        mysql_connection_setting_sqls.each { |sql| log_connection_execute(conn, sql) }
        complete = conn
      ensure
        conn&.close unless complete
      end

      # Calls a procedure.
      #
      # @param name [Symbol, String]
      # @option opts [Array] :args
      def call_sproc(name, opts = OPTS, &block)
        args = opts[:args] || []
        execute("CALL #{name}#{args.empty? ? "()" : literal(args)}", opts.merge(sproc: false), &block)
      end

      # @see HeddleAdapter::DatabaseMethods#execute
      def execute(sql, opts = OPTS, &block)
        opts[:sproc] ? call_sproc(sql, opts, &block) : super
      end

      # @return [Integer] the first number that the statement generated; 0 for none
      def execute_insert(sql, opts = OPTS)
        execute(sql, opts).last_insert_id || 0
      end

      def freeze
        server_version
        super
      end

      # @return [Integer] 101100 for 10.11.0
      def server_version(_server = nil)
        @server_version ||= super()
      end

      private

      def adapter_initialize
        super
        @convert_tinyint_to_bool = true
        @heddle_ended = {}.compare_by_identity
      end

      # MySQL has one code for all that the server's options forbid, also for writes to a replica after a failover.
      def disconnect_error?(exception, opts)
        super || (exception.is_a?(::Heddle::DB::ReadOnly) && exception.code == 1290)
      end

      # HY000 says nothing.
      def database_exception_sqlstate(exception, opts)
        state = super
        state unless state == "HY000"
      end

      def heddle_query(conn, sql, arguments)
        conn.driver.local_times = MySQLCasts.local?(timezone)
        super
      end

      # A definition commits the transaction it is in, and the block goes on without one, as with Sequel's adapters.
      def heddle_refused(conn, error)
        return unless error.ended_transaction && conn.driver.kind(error.sql) != :commit

        transaction = _trans(conn)
        @heddle_ended[conn] = [transaction, error] if transaction
      end

      def heddle_check(conn)
        return if @heddle_ended.empty?

        transaction, error = @heddle_ended[conn]
        return unless transaction&.equal?(_trans(conn))

        raise ::Heddle::DB::TransactionError, "the server has ended this transaction (#{error.message}): leave the " \
          "block of the transaction", cause: error
      end

      def remove_transaction(conn, committed)
        super
      ensure
        @heddle_ended.delete(conn) unless @heddle_ended.empty? || _trans(conn)
      end

      def bound_variable_arg(argument, _conn)
        case argument
        when true then 1
        when false then 0
        when Time, Date then @default_dataset.literal_date_or_time(argument, true)
        when SQL::Blob then argument.b
        when LiteralString then argument.to_s
        else argument
        end
      end

      def dataset_class_default = Dataset

      def schema_column_type(db_type)
        (convert_tinyint_to_bool && db_type.start_with?("tinyint(1)")) ? :boolean : super
      end
    end

    # Datasets of MySQL and MariaDB.
    class Dataset < Sequel::Dataset
      include Sequel::MySQL::DatasetMethods
      include Sequel::Dataset::StoredProcedures
      include HeddleAdapter::DatasetMethods

      StoredProcedureMethods = prepared_statements_module(
        "sql = @opts[:sproc_name]; opts = Hash[opts]; opts[:args] = @opts[:sproc_args]; opts[:sproc] = true",
        Sequel::Dataset::StoredProcedureMethods, %w[execute execute_dui]
      )
      PreparedStatementMethods = prepared_statements_module(
        "sql = self; opts = Hash[opts]; opts[:arguments] = bind_arguments",
        Sequel::Dataset::UnnumberedArgumentMapper, %w[execute execute_dui execute_insert]
      )
      private_constant :StoredProcedureMethods, :PreparedStatementMethods

      # Reads the rows by a cursor of the server.
      #
      # @option opts [Integer] :rows_per_fetch (1000)
      # @option opts [Boolean] :stream (true) false: by Sequel's own queries with limits
      def paged_each(opts = OPTS, &block)
        return super if opts[:stream] == false
        return enum_for(:paged_each, opts) unless block

        (opts[:rows_per_fetch] ? stream.clone(rows_per_fetch: opts[:rows_per_fetch]) : stream).each(&block)
        self
      end

      private

      def heddle_casts(description)
        MySQLCasts.of(db, description, convert_tinyint_to_bool?)
      end

      # Whether TINYINT(1) and BIT(1) are booleans. A dataset may override it, as with Sequel's adapter +mysql2+.
      def convert_tinyint_to_bool? = db.convert_tinyint_to_bool

      def bound_variable_modules = [PreparedStatementMethods]

      def prepared_statement_modules = [PreparedStatementMethods]

      def prepare_extend_sproc(dataset)
        dataset.with_extend(StoredProcedureMethods)
      end

      # A backslash is an ordinary character for servers with NO_BACKSLASH_ESCAPES.
      def literal_string_append(sql, string)
        return super if !string.include?("\\") || db.synchronize(@opts[:server]) { |c| c.driver.backslash_escapes? }

        sql << "'" << string.gsub("'", "''") << "'"
      end
    end
  end
end

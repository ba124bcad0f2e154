# frozen_string_literal: true

require_relative "heddle/common"
require_relative "heddle/postgresql_casts"
require_relative "heddle/postgresql_copy"
require_relative "heddle/postgresql_listen"
require "heddle/db/postgresql"
require "sequel/adapters/shared/postgres"

module Sequel
  # Sequel's adapter for PostgreSQL on Heddle::DB.
  #
  #   DB = Sequel.connect("heddle-postgresql://user:password@127.0.0.1/shop", max_connections: 10, query_timeout: 2)
  #
  # Values come as the server's text, and go through the Database's conversion procs. So Sequel's extensions for
  # arrays, JSON, ranges and others work as with its adapter +postgres+, whose methods this one has.
  module HeddlePostgreSQL
    # What Sequel.connect takes besides Sequel's own options for PostgreSQL (+search_path+, +client_min_messages+,
    # +force_standard_strings+, +convert_infinite_timestamps+) and the common ones of Heddle::DB:
    #
    # - +query_timeout+: seconds that a statement may take, with all its rows
    # - +conn_str+: a URL, or libpq's pairs, instead of host, port, user, password and database
    # - +sslmode+, +sslrootcert+ and the others of Heddle::DB.connect for PostgreSQL; any option of it, in
    #   +driver_options+
    # - +notice_receiver+: is called with each Heddle::DB::Notice
    #
    # The time zone of the session stays the server's. Timestamps without a zone are read as Sequel's +timezone+ says.
    class Database < Sequel::Database
      include Postgres::DatabaseMethods
      include HeddleAdapter::DatabaseMethods
      include PostgreSQLCopy
      include PostgreSQLListen

      OWN = %i[hostaddr sslmode sslrootcert sslcert sslkey sslpassword sslnegotiation channel_binding require_auth
        target_session_attrs load_balance_hosts application_name passfile service options].freeze
      CONNECT_SECONDS = 20
      private_constant :OWN, :CONNECT_SECONDS

      set_adapter_scheme :"heddle-postgresql"

      # @api private
      attr_reader :heddle_own_procs

      # Makes a bound value of what Sequel's extensions have no text for.
      def bound_variable_arg(argument, _conn)
        case argument
        when Time, DateTime then @default_dataset.literal_date_or_time(argument, true)
        else argument
        end
      end

      # Calls a procedure.
      #
      # @param name [Symbol]
      # @param args its arguments
      # @return [Hash, nil] what it returns
      def call_procedure(name, *args)
        dataset.send(:call_procedure, name, args)
      end

      # Opens a connection; for the pool.
      #
      # @param server [Symbol, Hash] the shard
      # @return [Heddle::DB::Connection]
      def connect(server)
        opts = server_opts(server)
        own = opts.slice(*OWN).reject { |_, value| blank_object?(value) }
        encoding = opts[:encoding] || opts[:charset]
        own[:client_encoding] = encoding if encoding
        own[:connect_timeout] = CONNECT_SECONDS unless opts[:connect_timeout]
        own.merge!(opts[:driver_options]) if opts[:driver_options]
        conn = heddle_connect(opts[:conn_str] || "postgresql://", opts, **own) do |settings|
          {**settings, time_zone: :server}
        end
        conn.driver.textual = true
        conn.on_notice(&opts[:notice_receiver]) if opts[:notice_receiver]
        connection_configuration_sqls(opts).each { |sql| log_connection_execute(conn, sql) }
        complete = conn
      ensure
        conn&.close unless complete
      end

      # As Sequel's adapter +postgres+ has it: the extension pg_extended_date_support has what it says.
      def convert_infinite_timestamps = false

      # @param value [Symbol, String, true] loads the extension pg_extended_date_support, which takes it
      def convert_infinite_timestamps=(value)
        return unless value.is_a?(Symbol) || value.is_a?(String) || value == true

        extension(:pg_extended_date_support)
        self.convert_infinite_timestamps = value
      end

      # What the server says of an error.
      #
      # @param error [Sequel::DatabaseError, Heddle::DB::ServerError]
      # @return [Hash{Symbol => Object}] :schema, :table, :column, :constraint, :severity, :sql_state, :message_primary,
      #   :message_detail, :message_hint, :statement_position; nil where the server says nothing
      def error_info(error)
        error = error.wrapped_exception if error.is_a?(DatabaseError)
        {schema: error.schema, table: error.table, column: error.column, constraint: error.constraint,
         severity: error.instance_variable_get(:@severity), sql_state: error.sql_state, message_primary: error.message,
         message_detail: error.detail, message_hint: error.hint, statement_position: error.position}
      end

      # Loads extensions. Sequel's pg_auto_parameterize, which binds the values of all statements, asks for the adapter
      # +postgres+ by name; it works with this one.
      def extension(*names)
        names.each { |name| (name == :pg_auto_parameterize) ? heddle_auto_parameterize : super(name) }
        self
      end

      private

      def adapter_initialize
        super
        initialize_postgres_adapter
        @heddle_own_procs = PostgreSQLCasts.register(conversion_procs)
        self.convert_infinite_timestamps = @opts[:convert_infinite_timestamps]
      end

      def heddle_auto_parameterize
        return if @loaded_extensions.include?(:pg_auto_parameterize)

        Sequel.extension(:pg_auto_parameterize)
        @loaded_extensions << :pg_auto_parameterize
        singleton_class.include(Postgres::AutoParameterize::DatabaseMethods)
        extend_datasets(Postgres::AutoParameterize::DatasetMethods)
      end

      # All values but bytes are sent as text without a type, which the server finds out from the statement.
      def heddle_arguments(arguments)
        arguments&.map do |argument|
          argument = bound_variable_arg(argument, nil)
          case argument
          when nil then nil
          when true then "t"
          when false then "f"
          when SQL::Blob then argument.b
          when String then heddle_text(argument)
          when BigDecimal then argument.to_s("F")
          else argument.to_s
          end
        end
      end

      # A String in binary encoding would be taken for bytes.
      def heddle_text(string)
        (string.encoding == Encoding::BINARY) ? string.dup.force_encoding(Encoding::UTF_8) : string.to_s
      end

      def database_specific_error_class(exception, opts)
        return Postgres::ExclusionConstraintViolation if exception.is_a?(::Heddle::DB::ExclusionViolation)

        super
      end

      def dataset_class_default = Dataset
    end

    # Datasets of PostgreSQL.
    class Dataset < Sequel::Dataset
      include Postgres::DatasetMethods
      include HeddleAdapter::DatasetMethods

      PREPARED_ARG_PLACEHOLDER = LiteralString.new("$").freeze
      CURSOR = "sequel_cursor"

      # Numbers the arguments; several placeholders of one name share a number.
      module ArgumentMapper
        include Sequel::Dataset::ArgumentMapper

        protected

        def map_to_prepared_args(hash)
          prepared_args.map { |name| hash[name] }
        end

        private

        def prepared_arg(name)
          index = prepared_args.index(name)
          prepared_args << name unless index
          LiteralString.new("$#{index ? index + 1 : prepared_args.size}")
        end
      end

      PreparedStatementMethods = prepared_statements_module(
        "sql = self; opts = Hash[opts]; opts[:arguments] = bind_arguments", ArgumentMapper, %w[execute execute_dui]
      )
      private_constant :PREPARED_ARG_PLACEHOLDER, :CURSOR, :ArgumentMapper, :PreparedStatementMethods

      # @yieldparam row [Hash]
      # @return [self]
      def fetch_rows(sql, &block)
        @opts[:cursor] ? heddle_cursor(sql, &block) : super
      end

      # Reads the rows by a cursor, see {#use_cursor}.
      def paged_each(opts = OPTS, &block)
        return enum_for(:paged_each, opts) unless block

        use_cursor(opts).each(&block)
      end

      # Reads the rows by a cursor that SQL can name ({#where_current_of}), in a transaction. {#stream} does with fewer
      # messages.
      #
      # @option opts [String] :cursor_name ("sequel_cursor") another one for a cursor inside another
      # @option opts [Boolean] :hold (false) whether the cursor outlives its transaction, and needs none
      # @option opts [Boolean] :skip_transaction the same as :hold
      # @option opts [Integer] :rows_per_fetch (1000)
      # @return [Dataset]
      def use_cursor(opts = OPTS)
        clone(cursor: {rows_per_fetch: 1000}.merge!(opts))
      end

      # @param cursor [String] see {#use_cursor}
      # @return [Dataset] of the row that the cursor is at
      def where_current_of(cursor = CURSOR)
        clone(where: Sequel.lit(["CURRENT OF "], Sequel.identifier(cursor)))
      end

      private

      def heddle_casts(description)
        PostgreSQLCasts.of(db, db.heddle_own_procs, description)
      end

      # A portal lives in a transaction.
      def heddle_hold(&block) = db.transaction(server: @opts[:server] || :read_only, &block)

      def heddle_cursor(sql, &block)
        cursor = @opts[:cursor]
        hold = cursor.fetch(:hold) { cursor[:skip_transaction] }
        name = quote_identifier(cursor[:cursor_name] || CURSOR)
        size = cursor[:rows_per_fetch].to_i
        options = {server: @opts[:server] || :read_only, skip_transaction: hold}
        db.transaction(options) do
          db.execute_ddl("DECLARE #{name} NO SCROLL CURSOR WITH#{"OUT" unless hold} HOLD FOR #{sql}", options)
          heddle_with_cursor(name, options) { heddle_fetch(name, (size > 0) ? size : 1000, options, &block) }
        end
        self
      end

      # A CLOSE in a failed transaction is refused, and must not hide what failed it.
      def heddle_with_cursor(name, options)
        yield
      rescue Exception # standard:disable Lint/RescueException
        failed = true
        raise
      ensure
        begin
          db.execute_ddl("CLOSE #{name}", options)
        rescue DatabaseError
          raise unless failed
        end
      end

      def heddle_fetch(name, size, options, &block)
        count = size
        while count == size
          execute("FETCH FORWARD #{size} FROM #{name}", options) do |result|
            count = result.size
            heddle_yield(result.rows, result.instance_variable_get(:@description), &block)
          end
        end
      end

      def call_procedure(name, args)
        sql = +"CALL "
        identifier_append(sql, name)
        sql << "("
        expression_list_append(sql, args)
        sql << ")"
        with_sql_first(sql)
      end

      def bound_variable_modules = [PreparedStatementMethods]

      def prepared_statement_modules = [PreparedStatementMethods]

      def prepared_arg_placeholder = PREPARED_ARG_PLACEHOLDER

      def literal_blob_append(sql, blob)
        sql << (heddle_escapes? ? "'\\\\x" : "'\\x") << blob.unpack1("H*") << "'"
      end

      # Where a backslash is special, it would end the string too late: E says so in all cases.
      def literal_string_append(sql, string)
        return super unless string.include?("\\") && heddle_escapes?

        sql << " E'" << string.gsub("\\") { "\\\\" }.gsub("'", "''") << "'"
      end

      def heddle_escapes? = db.synchronize(@opts[:server]) { |conn| conn.driver.backslash_escapes? }
    end
  end
end

# frozen_string_literal: true

require_relative "heddle/common"
require_relative "heddle/sqlite_casts"
require "heddle/db/sqlite"
require "sequel/adapters/shared/sqlite"

module Sequel
  # Sequel's adapter for SQLite on Heddle::DB: a long query, or a locked database, stops no other task.
  #
  #   DB = Sequel.connect("heddle-sqlite:///var/lib/shop.db", max_connections: 10, query_timeout: 2)
  module HeddleSQLite
    # What Sequel.connect takes besides Sequel's own options for SQLite (+foreign_keys+, +case_sensitive_like+,
    # +synchronous+, +temp_store+, +setup_regexp_function+, +regexp_function_cache+, +integer_booleans+ …):
    #
    # - +database+: a path, or ":memory:"; then the pool has one connection
    # - +timeout+: milliseconds to wait for a lock (5000)
    # - +readonly+, +journal_mode+, +pragmas+: see Heddle::DB.connect
    # - +query_timeout+: seconds that a statement may take, with all its rows
    #
    # Unlike Sequel's adapter +sqlite+, this one makes the journal a write-ahead log, as Heddle::DB does.
    class Database < Sequel::Database
      include Sequel::SQLite::DatabaseMethods
      include HeddleAdapter::DatabaseMethods

      OWN = %i[journal_mode synchronous pragmas immutable create extensions].freeze
      LOCK_MILLISECONDS = 5000
      MEMORY = ":memory:"
      private_constant :OWN, :LOCK_MILLISECONDS, :MEMORY

      set_adapter_scheme :"heddle-sqlite"

      # As Sequel's adapter +sqlite+: three slashes before an absolute path, two before a relative one, none before
      # :memory:.
      #
      # @api private
      def self.uri_to_options(uri)
        return {database: "#{uri.host}#{uri.path}"} unless uri.host.to_s.empty?
        return {database: uri.opaque} if uri.path.to_s.empty?

        {database: (uri.path unless uri.path == "/")}
      end
      private_class_method :uri_to_options

      # @return [Hash{String => #call}] what makes values, by the declared types in lower case without parentheses
      attr_reader :conversion_procs

      # @return [Boolean] whether patterns may be Regexps, see +setup_regexp_function+
      def allow_regexp? = @allow_regexp

      # Opens a connection; for the pool.
      #
      # @param server [Symbol, Hash] the shard
      # @return [Heddle::DB::Connection]
      def connect(server)
        opts = server_opts(server)
        conn = heddle_connect("sqlite:", opts, **heddle_options(opts)) { |settings| settings }
        conn.driver.stored_values = true
        connection_pragmas.each { |sql| log_connection_execute(conn, sql) }
        heddle_regexp_function(conn, opts) if @allow_regexp
        complete = conn
      ensure
        conn&.close unless complete
      end

      # @return [Integer, nil] the row's number; nil if no row was inserted
      def execute_insert(sql, opts = OPTS)
        execute(sql, opts).last_insert_id
      end

      def freeze
        @conversion_procs.freeze
        super
      end

      # Makes a time of a column's value: a text, seconds since 1970, or a Julian day.
      #
      # @param value [String, Integer, Float]
      # @return [Time, DateTime]
      def to_application_timestamp(value)
        case value
        when Integer then super(Time.at(value).to_s)
        when Float then super(DateTime.jd(value).to_s)
        else super
        end
      end

      private

      def adapter_initialize
        super
        set_integer_booleans
        @allow_regexp = typecast_value_boolean(@opts[:setup_regexp_function])
        @conversion_procs = SQLiteCasts.procs(method(:to_application_timestamp))
      end

      # Each connection to a database in memory has a database of its own.
      def connection_pool_default_options
        memory = blank_object?(@opts[:database]) || @opts[:database] == MEMORY
        memory ? super.merge(max_connections: 1) : super
      end

      def heddle_options(opts)
        own = opts.slice(*OWN).compact
        own[:database] = blank_object?(opts[:database]) ? MEMORY : opts[:database].to_s
        own[:read_only] = typecast_value_boolean(opts[:readonly]) if opts.key?(:readonly)
        milliseconds = typecast_value_integer(opts.fetch(:timeout, LOCK_MILLISECONDS))
        own[:busy_timeout] = [milliseconds, 1].max / 1000.0
        own
      end

      def heddle_regexp_function(conn, opts)
        matches = heddle_regexp_match(opts[:setup_regexp_function], opts[:regexp_function_cache])
        conn.create_function("regexp", arity: 2) { |pattern, text| (text && matches.call(pattern, text)) ? 1 : 0 }
      end

      def heddle_regexp_match(how, cache)
        case how
        when Proc then how
        when :cached, "cached"
          made = cache.is_a?(Proc) ? cache.call : (cache || Hash).new
          ->(pattern, text) { (made[pattern] ||= Regexp.new(pattern)).match?(text) }
        else ->(pattern, text) { Regexp.new(pattern).match?(text) }
        end
      end

      def connection_execute_method = :query

      # SQLite ends a transaction when it interrupts a write in it, and after some errors. A block that rescues them and
      # goes on would have its other statements committed one by one.
      def heddle_check(conn)
        return if @transactions.empty? || conn.in_transaction? || !_trans(conn)

        raise ::Heddle::DB::TransactionError, "SQLite has rolled this transaction back, after a statement that was " \
          "interrupted or refused: leave the block of the transaction"
      end

      # SQLite has no protocol of texts: its statements are all prepared.
      def heddle_query(conn, sql, arguments)
        conn.query(sql, *heddle_arguments(arguments))
      end

      def bound_variable_arg(argument, _conn)
        case argument
        when true, false then heddle_boolean(argument)
        when Time, Date then @default_dataset.literal_date_or_time(argument, true)
        when SQL::Blob then argument.b
        else argument
        end
      end

      def heddle_boolean(value)
        return literal(value)[1...-1] unless integer_booleans

        value ? 1 : 0
      end

      def sqlite_error_code(exception)
        exception.code if exception.is_a?(::Heddle::DB::ServerError)
      end

      def dataset_class_default = Dataset
    end

    # Datasets of SQLite.
    class Dataset < Sequel::Dataset
      include Sequel::SQLite::DatasetMethods
      include HeddleAdapter::DatasetMethods

      PreparedStatementMethods = prepared_statements_module(
        "sql = self; opts = Hash[opts]; opts[:arguments] = bind_arguments",
        Sequel::Dataset::UnnumberedArgumentMapper, %w[execute execute_dui execute_insert]
      )
      REGEXPS = {"~": "", "!~": "NOT ", "~*": "", "!~*": "NOT "}.freeze
      private_constant :PreparedStatementMethods, :REGEXPS

      # @return [Boolean] see +setup_regexp_function+ of {Database}
      def supports_regexp? = db.allow_regexp?

      # Regexps, by the function regexp of the connection.
      def complex_expression_sql_append(sql, operator, args)
        negation = REGEXPS[operator]
        return super unless negation && supports_regexp?

        args = args.map { |arg| Sequel.function(:LOWER, arg) } if operator.end_with?("*")
        sql << negation << "("
        literal_append(sql, args[0])
        sql << " REGEXP "
        literal_append(sql, args[1])
        sql << ")"
      end

      private

      def heddle_casts(description)
        SQLiteCasts.of(db, description)
      end

      def bound_variable_modules = [PreparedStatementMethods]

      def prepared_statement_modules = [PreparedStatementMethods]
    end
  end
end

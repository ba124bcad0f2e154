# frozen_string_literal: true

require_relative "../../../heddle"
require "heddle/db"
require "sequel"

module Sequel
  # What Sequel's adapters on Heddle::DB have in common. A connection of their pools is a Heddle::DB::Connection. Sequel
  # writes the statements, begins and ends the transactions, and owns the pool.
  module HeddleAdapter
    # Heddle's options that Sequel.connect takes under the same names, for every database.
    OPTIONS = %i[host port user password database socket tls connect_timeout kill_queries server_deadlines
      statement_cache statement_cache_size init].freeze
    # Sequel's classes for Heddle's errors.
    ERRORS = {
      ::Heddle::DB::UniqueViolation => UniqueConstraintViolation,
      ::Heddle::DB::ForeignKeyViolation => ForeignKeyConstraintViolation,
      ::Heddle::DB::NotNullViolation => NotNullConstraintViolation,
      ::Heddle::DB::CheckViolation => CheckConstraintViolation,
      ::Heddle::DB::SerializationFailure => SerializationFailure,
      ::Heddle::DB::DeadlockDetected => SerializationFailure,
      ::Heddle::DB::LockTimeout => DatabaseLockTimeout
    }.freeze
    ERROR_CLASSES = [::Heddle::DB::Error].freeze
    RowHashes = ::Heddle::DB.const_get(:RowHashes)
    # Takes an error of Heddle's (the cause) from a block of the caller's through this adapter and Sequel's pool. The
    # error may be of another database: it says nothing of this connection.
    CallersError = Class.new(StandardError)
    private_constant :OPTIONS, :ERRORS, :ERROR_CLASSES, :RowHashes, :CallersError

    class << self
      # How RowHashes reads texts of times as Sequel would.
      #
      # @api private
      # @param db [Sequel::Database]
      # @param call [#call] Sequel's own way
      # @return [Array, #call] the call itself where the time zones or the class of times are not the usual ones
      def time_cast(db, call)
        read = db.timezone || :local
        made = Sequel.application_timezone
        simple = Sequel.datetime_class == Time && zone?(read) && (made.nil? || zone?(made))
        simple ? [:time, call, read, made] : call
      end

      private

      def zone?(zone) = zone == :local || zone == :utc
    end

    # Methods of the Sequel::Database.
    module DatabaseMethods
      # @param conn [Heddle::DB::Connection]
      def disconnect_connection(conn)
        conn.close
      end

      # Runs a statement or a prepared one.
      #
      # @param sql [String, Symbol, Dataset] the text, or the name of a prepared statement, or the statement itself
      # @option opts [Symbol] :server the shard
      # @option opts [Array] :arguments the values of the placeholders
      # @yieldparam result [Heddle::DB::Result]
      # @return [Object] the block's value; without a block the Heddle::DB::Result
      # @raise [Sequel::DatabaseError] of the server; [Heddle::DeadlineExceeded] a closed connection leaves
      #   the pool
      def execute(sql, opts = OPTS)
        result = heddle_result(sql, opts)
        defined?(yield) ? yield(result) : result
      end

      # @return [Integer] how many rows changed
      def execute_dui(sql, opts = OPTS)
        execute(sql, opts).affected_rows
      end

      private

      def adapter_initialize
        @heddle_statements = {}
        extension(:heddle)
      end

      def heddle_result(sql, opts)
        synchronize(opts[:server]) { |conn| heddle_run(conn, sql, opts) }
      rescue ::Heddle::DB::Error => error
        raise_error(error)
      end

      # Runs a statement on this connection, and logs it.
      def heddle_run(conn, sql, opts)
        heddle_check(conn)
        arguments = opts[:arguments]
        unless sql.is_a?(Symbol) || sql.is_a?(Sequel::Dataset::ArgumentMapper)
          return log_connection_yield(sql, conn, arguments) { heddle_query(conn, sql, arguments) }
        end

        prepared = sql.is_a?(Symbol) ? prepared_statement(sql) : sql
        text = prepared.prepared_sql
        name = prepared.prepared_statement_name
        log = "EXECUTE #{name || text}#{" (#{text})" if name && prepared.log_sql}"
        arguments = heddle_arguments(arguments)
        statement = name ? heddle_statement(name, text) : text
        log_connection_yield(log, conn, arguments) { conn.query(statement, *arguments) }
      rescue ::Heddle::DB::ServerError => error
        heddle_refused(conn, error)
        raise
      end

      # Raises where a statement must not run on this connection now: the database has ended the transaction, and would
      # commit each further statement by itself.
      def heddle_check(conn)
      end

      # Notes what an error has done to the transaction.
      def heddle_refused(conn, error)
      end

      def heddle_query(conn, sql, arguments)
        arguments ? conn.query(sql, *heddle_arguments(arguments)) : conn.query_text(sql)
      end

      # Each connection keeps this statement prepared: see Heddle::DB.virtual_statement. The Hash changes also after
      # Database#freeze.
      def heddle_statement(name, text)
        kept = @heddle_statements[name]
        return kept.last if kept && kept.first == text

        statement = ::Heddle::DB.virtual_statement { text }
        Sequel.synchronize { @heddle_statements[name] = [text, statement].freeze }
        statement
      end

      def heddle_arguments(arguments)
        arguments&.map { |argument| bound_variable_arg(argument, nil) }
      end

      # Makes Sequel's errors of ours. Blocks of the caller's are called by heddle_callers in here.
      def heddle_errors
        yield
      rescue ::Heddle::DB::Error => error
        raise_error(error)
      rescue CallersError => carried
        raise carried.cause, cause: carried.cause.cause
      end

      # Calls a block of the caller's, whose errors are left alone.
      def heddle_callers
        yield
      rescue ::Heddle::DB::Error
        raise CallersError, "an error of the caller's block"
      end

      # Opens a connection.
      #
      # @param url [String] of Heddle::DB; at least its scheme
      # @param opts [Hash] those of the shard
      # @param own [Hash] options of this database
      # @yieldparam settings [Hash] checked
      # @yieldreturn [Hash] those to connect with
      def heddle_connect(url, opts, **own)
        settings = opts.slice(*OPTIONS).reject { |_, value| blank_object?(value) }
        settings[:timeout] = opts[:query_timeout] if opts[:query_timeout]
        settings[:statement_cache] ||= :virtual
        driver, settings = ::Heddle::DB.settings(url, {**settings, **own})
        ::Heddle::DB.connect_with(driver, yield(settings))
      end

      # Without its transaction a savepoint would begin another one.
      def begin_savepoint(conn, opts)
        heddle_errors { heddle_check(conn) }
        super
      end

      # A block must not end as if its transaction had been committed.
      def commit_transaction(conn, opts = OPTS)
        heddle_check(conn)
        super
      end

      # The database has ended a transaction without an open one, and a lost connection.
      def rollback_transaction(conn, opts = OPTS)
        super if conn.in_transaction?
      end

      def connection_execute_method = :query_text

      def database_error_classes = ERROR_CLASSES

      def database_exception_sqlstate(exception, _opts)
        exception.sql_state if exception.is_a?(::Heddle::DB::ServerError)
      end

      def database_specific_error_class(exception, opts)
        return DatabaseDisconnectError if disconnect_error?(exception, opts)

        ERRORS[exception.class] || super
      end

      def disconnect_error?(exception, opts)
        super || exception.is_a?(::Heddle::DB::ConnectionLost) || exception.is_a?(::Heddle::DB::ProtocolError)
      end
    end

    # Methods of the datasets.
    module DatasetMethods
      # @yieldparam row [Hash]
      # @return [self]
      def fetch_rows(sql, &block)
        return heddle_stream(sql, &block) if @opts[:stream]

        execute(sql) do |result|
          while result
            heddle_yield(result.rows, result.description, &block) if result.rows?
            result = result.following
          end
        end
        self
      end

      # Reads rows by a cursor of the server, some at a time, instead of all at once. The connection is the block's
      # until the last row.
      #
      # @return [Dataset]
      def stream = clone(stream: true)

      private

      def heddle_stream(sql, &block)
        size = @opts[:rows_per_fetch] || 1000
        db.send(:heddle_errors) do
          heddle_hold do |conn|
            arguments = db.send(:heddle_arguments, @opts[:bind_arguments]) || []
            db.send(:heddle_check, conn)
            heddle_batches(conn, sql, arguments, size) do |rows, description|
              db.send(:heddle_callers) { heddle_yield(rows, description, &block) } if description
            end
          rescue ::Heddle::DB::ServerError => error
            db.send(:heddle_refused, conn, error)
            raise
          end
        end
        self
      end

      # Lends the block a connection, with all that a cursor needs.
      def heddle_hold(&block) = db.synchronize(@opts[:server] || :read_only, &block)

      def heddle_batches(conn, sql, arguments, size, &block)
        db.log_connection_yield(sql, conn) { conn.each_batch(sql, arguments, fetch: size, &block) }
      end

      def heddle_yield(rows, description, &block)
        self.columns = names = description.names.map { |name| output_identifier(name) }
        RowHashes.each(rows, names, heddle_casts(description), &block)
      end
    end
  end
end

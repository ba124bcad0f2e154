# frozen_string_literal: true

module Heddle
  module DB
    # A connection to a database, for one fiber or thread at a time. Values are bound to parameters, and never inserted
    # into the text of a statement.
    #
    # An interrupted operation (by a deadline, a cancel, Thread#raise) closes this connection, because its next bytes
    # could be the answer to an earlier query. If possible, a second connection tells the server to stop the query. A
    # connection to PostgreSQL stays open if the server then ends the query in time; one to SQLite, which works in this
    # process, always stays open. A statement is sent twice only if the server reports that it did not begin it.
    class Connection
      include ForeignRows
      include Transactions
      include Backup
      include Functions
      include Pipelines
      include Copy
      include Listening
      include Notices
      include Queries
      include QueryListeners
      include Tables

      # With more pending closes than this, they are sent without a next request.
      CLOSES_WAITING = 64

      # The most pending closes of an idle connection in its pool.
      CLOSES_RESTING = 8

      # Rows that a cursor fetches at once; and the protocol's limit.
      FETCHED = 1000
      MOST_FETCHED = 0xffffffff

      # Characters of a statement in a message.
      SQL_IN_MESSAGES = 300
      private_constant :CLOSES_WAITING, :CLOSES_RESTING, :FETCHED, :MOST_FETCHED, :SQL_IN_MESSAGES

      # @api private
      def initialize(driver, statement_cache:, statement_cache_size:, timeout: nil, init: [])
        @driver = driver
        @cache = StatementCache.new(driver, statement_cache, statement_cache_size)
        driver.when_full { @cache.clear }
        @timeout = timeout
        @frames = []
        attach(driver, driver.native, @cache, statement_cache, @frames, timeout)
        @checkins = 0
        @notice_handler = nil
        @init = init
        initialize_transactions
      end

      # Runs the statements and the Procs of +init+.
      #
      # @api private
      def set_up
        return if @init.empty?

        @init.each { |step| step.respond_to?(:call) ? step.call(self) : query(step) }
        @cache.clear
        @driver.settle_session
      rescue ServerError => error
        raise LoginFailed, "a statement of init: was refused: #{error.message} (#{error.sql})", cause: error
      end

      # A name of a table or column, in the quotes of this database.
      #
      # @param names [String, Symbol] the name; several are the parts of one name: a schema or a table in front
      # @return [String]
      # @raise [ArgumentError] for an empty name, or one with a NUL
      # @example
      #   db.query("select * from #{db.quote_identifier("shop", "order")}")
      def quote_identifier(*names)
        raise ArgumentError, "quote_identifier needs a name" if names.empty?

        names.map { |name| @driver.quote_identifier(name) }.join(".")
      end

      # @return [Symbol] the database: :mysql, :mariadb, :postgresql, :sqlite, or :odbc for any other; the server's own
      #   answer, not the scheme of the URL
      def database_type
        @driver.database_type
      end

      # Runs a statement.
      #
      # @param sql [String, VirtualStatement, BoundStatement] with a ? for each of the arguments, or with names such as
      #   :name, for which the values are keywords
      # @param arguments [nil, Boolean, Integer, Float, BigDecimal, String, Symbol, Date, Time, Duration] a String in
      #   binary encoding is bytes, any other is text
      # @return [Result]
      # @raise [ServerError] the connection stays usable; [ConnectionLost, ProtocolError] the connection
      #   is closed; [DeadlineExceeded] it is closed or still open ({#closed?}); [TransactionError, Busy, ArgumentError,
      #   TypeError] nothing was sent
      def query(sql, *arguments)
        run_query(sql, arguments)
      end

      # Calls without keywords need no Hash.
      ruby2_keywords :query

      # Calls the block with each row, and keeps at most +fetch+ rows in memory, by a cursor on the server. The block
      # may use the connection for other queries.
      #
      # @param (see #query)
      # @param fetch [Integer] how many rows are fetched at once, 1000 by default; if the statement has a parameter
      #   :fetch, the value of that
      # @param named the values of :name parameters
      # @yieldparam row [Array]
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {#query}
      def each_row(sql, *arguments, fetch: (unset = true), **named)
        named[:fetch] = fetch unless unset
        return enum_for(:each_row, sql, *arguments, **named) unless block_given?

        fetch = (named.key?(:fetch) && !parameter?(sql, "fetch")) ? named.delete(:fetch) : FETCHED
        unless fetch.is_a?(Integer) && fetch.between?(1, MOST_FETCHED)
          raise ArgumentError, "fetch: must be a positive number of rows, not #{fetch.inspect}"
        end

        arguments << Hash.ruby2_keywords_hash(named) unless named.empty?
        sql, arguments = resolved(sql, arguments)
        watch = watch_for(sql)
        cursor = measured(watch) do
          exchange(sql) do
            check_transaction(@driver.kind(sql), sql)
            checked(@driver.open_cursor(sql, arguments), sql)
          end
        end
        each_fetched(cursor, fetch, sql, watch) { |row| yield row }
        self
      end

      # Prepares a statement, to run it several times.
      #
      # @param sql [String, VirtualStatement] with a ? for each value; names such as :name are for {#query} and the like
      # @return [Statement]
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {#query}
      def prepare(sql)
        sql = text_of(sql)
        sql = sql.dup.freeze unless sql.frozen?
        Statement.new(self, sql, exchange(sql) { prepared(sql) })
      end

      # @return [Boolean] whether the server answers
      def ping
        exchange { checked(@driver.ping, "ping") }
        true
      end

      # @return [Boolean] whether a pool may lend the connection: it is idle, in no transaction, and the server has
      #   not closed it. Takes one system call, and never waits
      def healthy?
        !busy? && !in_transaction? && @driver.healthy?
      end

      # The same, without the system call.
      #
      # @api private for a pool
      def at_rest?
        !busy? && !in_transaction? && @driver.at_rest?
      end

      # Reads the answers that no task of a {Multiplexer} waits for any more, if they come soon. Only for a driver that
      # has statements of several tasks in flight, as {#replies_to_drop?}.
      #
      # @return [Boolean] whether none is left
      # @api private for a pool
      def drop_replies = @driver.drop_replies

      # @return [Boolean] whether such answers are still to come
      # @api private for a pool
      def replies_to_drop? = @driver.replies_to_drop?

      # Sends the closes that wait for the next request.
      #
      # @return [self]
      def flush_closes
        exchange { @driver.flush_closes } if @driver.closes > 0
        self
      end

      # Sends the waiting closes unless they are few: a packet for a few closes would cost as much as the next
      # request's. Without a next request, MySQL's are sent after a second; see {Driver#closes_when_idle?} for the
      # others.
      #
      # @api private for a pool
      def flush_many_closes
        flush_closes if @driver.closes > (@driver.closes_when_idle? ? CLOSES_RESTING : 0)
      end

      # Restores the session for the next user, and forgets what the one before left: handlers, and a transaction of
      # {#start_transaction} that the server has ended.
      #
      # @return [Boolean] whether that worked; true without a request if nothing was changed
      # @api private for a pool
      def reset
        drop_frames if holder
        forget_handlers
        exchange { @driver.check_session } if @driver.session_unknown?
        return true unless @driver.session_changed?

        exchange do
          @driver.reset_session.tap { @cache.clear_closed }
        end.tap { |worked| set_up if worked }
      end

      # @return [Integer] how many statements stay prepared for reuse
      def cached_statements
        @cache.size
      end

      # Ends the connection. The server may complete a running statement. Closing twice is harmless.
      #
      # @return [nil]
      def close
        @driver.close
        nil
      end

      # @return [Boolean]
      def closed?
        @driver.closed?
      end

      # @return [Boolean] whether the connection belongs to a parent of this process
      # @api private for a pool
      def forked?
        @driver.forked?
      end

      # @return [Driver] what is the database's own
      attr_reader :driver

      # @param pool [Pool] is told of transactions
      # @api private for a pool
      def check_out(pool)
        @pool = pool
        self.returned = false
      end

      # Nobody may use the connection until the next {#check_out}.
      #
      # @api private for a pool
      def check_in
        self.returned = true
        @checkins += 1
      end

      # @return [Array(String, Array)] the text for this server, and the values of its parameters
      # @api private for a pool
      def resolved(statement, arguments)
        if BoundStatement === statement
          raise ArgumentError, "this statement has its values already: #{statement}" unless arguments.empty?

          statement, arguments = statement.sql, statement.arguments
        end
        Placeholders.resolve(@driver, text_of(statement), arguments)
      end

      # @api private
      def release_statement(handle)
        @driver.release(handle)
        flush_closes if @driver.closes > CLOSES_WAITING && !busy? && !closed?
      rescue Busy
        nil # the next request of whoever uses the connection takes them along
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@driver.description}#{" in a transaction" if in_transaction?}#{" closed" if closed?}>"
      end

      private

      def forget_handlers
        self.query_listeners = nil
        on_notice if @notice_handler
      end

      # Raises {Unsupported} unless the driver has this method of {Driver::Optional}.
      def need_driver(method, needed = method)
        return if @driver.respond_to?(needed)

        raise Unsupported.new("#{@driver.description} has no #{method}: not every database can do that", method)
      end

      # Called from C by #exchange when a request raised, or was left by a throw.
      #
      # @param error [Exception, nil]
      # @param lost [Boolean] whether it is an IOError, a SystemCallError or one of TLS
      # @param ended [Boolean] whether the connection had been closed before
      # @param late [Boolean] whether the connection's timeout has passed
      # @param what [String, Statement, nil] what was run
      def request_interrupted(error, lost, ended, late, what)
        settle_interrupted(lost)
        raise_explained_interruption(error, lost, ended, late, what)
      end

      # Called from C by a {Multiplexer} for a statement that ended without its answer.
      #
      # @param unsent [Boolean] whether no byte of it was sent
      # @param alone [Boolean] whether no other task's answers are to come on this connection
      def shared_interrupted(error, lost, unsent, late, what, alone)
        settle_interrupted(lost) if alone
        raise_explained_interruption(error, lost, unsent, late, what)
      end

      # Returns if the error says all.
      def raise_explained_interruption(error, lost, ended, late, what)
        raise_timeout(error, what) if late && DeadlineExceeded === error
        raise_explained(error, what) if ArgumentError === error
        # If the connection is still open, the caller's own code raised the error, such as an SQL function in Ruby.
        return if !lost || Error === error || !closed?

        what = if ended
          "this connection to #{@driver.description} is closed (#{error.message}): nothing was sent"
        else
          loss(error)
        end
        raise ConnectionLost, what, cause: error
      end

      # Says that the connection's own timeout has passed. The error of a deadline around the call is left as it is.
      def raise_timeout(error, what)
        return if Heddle.remaining&.zero?

        sql = what.is_a?(Statement) ? what.sql : what
        raise DeadlineExceeded, "#{@driver.description} did not answer within this connection's timeout: of " \
          "#{@timeout} s#{"; the connection is closed" if closed?}#{": #{shortened(sql)}" if sql}", cause: error
      end

      def shortened(sql) = (sql.length > SQL_IN_MESSAGES) ? "#{sql[0, SQL_IN_MESSAGES]}…" : sql

      def raise_explained(error, what)
        clearer = Placeholders.explained(@driver, error, what.is_a?(Statement) ? what.sql : what)
        raise clearer, cause: nil unless clearer.equal?(error)
      end

      # Other callers get Busy until the driver has decided whether the connection stays open.
      def settle_interrupted(lost)
        return Thread.handle_interrupt(IN_WAITS) { settle(lost) } unless Fiber.current_scheduler

        settle(lost)
      end

      def settle(lost)
        @driver.abandon(lost)
      ensure
        record_interruption unless closed?
      end

      def loss(error)
        "the connection to #{@driver.description} is lost (#{error.message}); the server may or may not have " \
          "executed the last request"
      end

      # Tells the listeners of a statement.
      def watched(sql)
        return yield nil unless (watch = watch_for(sql))

        value = watch.measure { yield watch }
        watch.done(value)
        value
      end

      def measured(watch, &block)
        watch ? watch.measure(&block) : yield
      end

      def watch_for(sql)
        QueryWatch.for(sql, self, @pool, DB)
      end

      # Called from C for a prepared statement that is not known to be plain, or may have to be prepared again.
      #
      # @return [Object] the statement, as the driver has it
      def ready_statement(statement, watch)
        sql = statement.sql
        unless statement.plain
          kind = @driver.kind(sql)
          statement.plain = kind == :plain
        end
        check_transaction(kind, sql)
        handle = cached = statement.handle
        unless @driver.owns?(handle) && !statement.expired? # the session was reset since, and all its statements closed
          unless statement.of?(self)
            raise StatementClosed, "this statement belongs to another connection: #{sql}"
          end

          statement.renew(handle = prepared(sql))
        end
        watch.cached = true if watch && handle.equal?(cached)
        handle
      end

      # Called from C for a prepared statement that the server has refused.
      def finish_statement(statement, arguments, error)
        sql = statement.sql
        return checked(error, sql) unless @driver.stale?(error)
        return lose(statement, error) if in_transaction?

        statement.renew(handle = prepared(sql))
        checked(@driver.execute(handle, arguments), sql)
      end

      # Nothing can be prepared in a failed transaction. The statement is prepared again in the caller's next one.
      def lose(statement, error)
        statement.expire
        error.stale = @driver.failed?
        checked(error, statement.sql)
      end

      # @return [Object] the statement, as the driver has it
      def prepared(sql)
        checked(@driver.prepare(sql), sql)
      end

      # Runs a text, and then calls the listeners and the handler of notices.
      def query_watched(sql, arguments, virtual: false)
        watched(sql) { |watch| exchange(sql) { perform(sql, arguments, watch, virtual) } }
      end

      # Runs a {BoundStatement}, a {VirtualStatement}, or a text with named values.
      def query_resolved(statement, arguments)
        sql, arguments = resolved(statement, arguments)
        query_watched(sql, arguments, virtual: virtual?(statement))
      end

      # Like {#query_watched}, for a prepared statement.
      def run_watched(statement, handle, arguments)
        watched(statement.sql) do |watch|
          exchange(statement) { perform_prepared(statement, handle, arguments, watch) }
        end
      end

      def virtual?(statement)
        statement = statement.sql if BoundStatement === statement
        VirtualStatement === statement
      end

      # Whether the text has a parameter of that name.
      def parameter?(sql, name)
        sql = text_of(sql)
        String === sql && sql.encoding.ascii_compatible? && sql.include?(":#{name}") &&
          Placeholders.names(@driver, sql).include?(name.to_sym)
      end

      def text_of(sql)
        (VirtualStatement === sql) ? sql.sql(database_type) : sql
      end

      # Prepares and runs a statement, and caches it.
      def cache_statement(sql, arguments)
        sql = sql.dup.freeze unless sql.frozen? # others may change it while the statement runs
        handle, result = @driver.query_prepared(sql, arguments)
        @cache[sql] = handle if handle
        result
      end

      # Prepares and runs a cached statement again if the server no longer has it, and so has not begun to run it.
      def run_if_stale(sql, arguments, error)
        return error unless @driver.stale?(error)

        @cache.delete(sql)
        return cache_statement(sql, arguments) unless in_transaction?

        error.stale = @driver.failed?
        error
      end

      def each_fetched(cursor, fetch, sql, watch)
        watch&.rows = 0
        checkins = @checkins
        until (rows = measured(watch) { exchange(sql) { checked(cursor.fetch(fetch), sql) } }).empty?
          watch.rows += rows.size if watch
          rows.each { |row| yield row }
          # The reader of an Enumerator may ask for rows when the connection belongs to another user.
          raise Busy, "this connection was returned to its pool" unless checkins == @checkins
        end
      ensure
        cursor.close
        watch&.done(nil)
      end

      def raise_refusal(error, sql)
        record_answer(error, sql)
        raise_stopped(error) if QueryCanceled === error && error.late
        raise Placeholders.explained(@driver, error, sql)
      end

      # The server has noticed first that the caller's time is over.
      def raise_stopped(error)
        raise_timeout(error, error.sql)
        raise DeadlineExceeded, "#{@driver.description} stopped a statement when its deadline had passed: " \
          "#{shortened(error.sql)}", cause: error
      end

      # @return [TransactionError, nil] the error of the queries that a pipeline may not send any more
      def record_answer(result, sql)
        return record_state unless result.is_a?(ServerError)

        unless result.sql
          result.sql = sql
          @driver.locate(result)
        end
        give_up(result) if @driver.final?(result)
        return unless (open = in_transaction?) || !@frames.empty?

        record_effect(result)
        if open && !in_transaction?
          result.ended_transaction = true
          unsent(result)
        end
      end

      # @return [TransactionError] with this error as its cause
      def unsent(error)
        raise TransactionError, "this statement was not sent: the server ended the transaction (#{error.message})",
          cause: error
      rescue TransactionError => unsent
        unsent
      end

      # The server closes the connection after this error.
      def give_up(error)
        @driver.close_silently
        raise ConnectionLost,
          "#{@driver.description} says #{error.message} (#{error.code || error.sql_state}) and closed the connection",
          cause: error
      end
    end
  end
end

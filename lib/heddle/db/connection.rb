# frozen_string_literal: true

module Heddle
  module DB
    # A connection to a database, for one fiber or thread at a time. What is in a statement's text is never put together from
    # values: they are bound to parameters.
    #
    # When an operation is interrupted (a deadline, a cancel, Thread#raise) the server is told to stop (KILL QUERY) where it can be
    # told which one, on a connection of its own, and this one is closed: what comes next on it might be the answer to another question. Nothing is
    # ever sent twice, but for a statement that the server says it has not begun.
    class Connection
      include Transactions

      # Where what closes are waiting is sent, if nothing else is.
      CLOSES_WAITING = 64

      # How many may wait on a connection that nobody uses for now.
      CLOSES_RESTING = 8

      # What the protocol has room for.
      MOST_FETCHED = 0xffffffff
      private_constant :CLOSES_WAITING, :CLOSES_RESTING, :MOST_FETCHED

      # @api private
      def initialize(driver, statement_cache:, statement_cache_size:)
        @driver = driver
        @cache = StatementCache.new(statement_cache, statement_cache_size) { |handle| driver.release(handle) }
        @talking = nil
        @lease = nil
        @ended = false
        initialize_transactions
      end

      # Runs a statement.
      #
      # @param sql [String] with a ? for each of the arguments
      # @param arguments [nil, Boolean, Integer, Float, BigDecimal, String, Symbol, Date, Time, Duration] a String in binary
      #   encoding is bytes, any other is text
      # @return [Result]
      # @raise [ServerError] the connection goes on; [ConnectionLost, ProtocolError, DeadlineExceeded] it is closed;
      #   [TransactionError, Busy, ArgumentError, TypeError] nothing was sent
      def query(sql, *arguments)
        talk { perform(sql, arguments) }
      end

      # Runs a statement that gives no rows that matter.
      #
      # @return [Integer] how many rows it changed
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {#query}
      def exec(sql, *arguments)
        query(sql, *arguments).affected_rows
      end

      # @return the one value of the one row
      # @raise [UnexpectedRows] when there are more, or none; see {#query}
      def query_value(sql, *arguments)
        row = only_row(query(sql, *arguments), sql)
        raise UnexpectedRows, "#{row.size} columns instead of one: #{sql}" unless row.size == 1

        row.first
      end

      # @return [Array] the one row
      # @raise [UnexpectedRows] when there are more, or none; see {#query}
      def query_row(sql, *arguments)
        only_row(query(sql, *arguments), sql)
      end

      # @return [Array, nil] the row; nil when there is none
      # @raise [UnexpectedRows] when there are more; see {#query}
      def query_maybe_row(sql, *arguments)
        result = query(sql, *arguments)
        result.empty? ? nil : only_row(result, sql)
      end

      # @return [Array] the one column's values
      # @raise [UnexpectedRows] when there are more columns; see {#query}
      def query_list(sql, *arguments)
        result = query(sql, *arguments)
        raise UnexpectedRows, "#{result.fields.size} columns instead of one: #{sql}" unless result.fields.size == 1

        result.rows.map(&:first)
      end

      # Calls the block with each row, of which no more than +fetch+ are held at a time (by a cursor of the server's). Between
      # them the connection may be used for other queries.
      #
      # @param fetch [Integer] how many rows travel at once
      # @yieldparam row [Array]
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {#query}
      def each_row(sql, *arguments, fetch: 1000)
        return enum_for(:each_row, sql, *arguments, fetch: fetch) unless block_given?
        raise ArgumentError, "fetch: is a number of rows above 0, not #{fetch.inspect}" unless fetch.is_a?(Integer) && fetch.between?(1, MOST_FETCHED)

        cursor = talk do
          check_transaction(@driver.kind(sql), sql)
          note(@driver.open_cursor(sql, arguments), sql)
        end
        begin
          until (rows = talk { note(cursor.fetch(fetch), sql) }).empty?
            rows.each { |row| yield row }
          end
        ensure
          cursor.close
        end
        self
      end

      # Prepares a statement that is run several times.
      #
      # @return [Statement]
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {#query}
      def prepare(sql)
        sql = (sql.frozen? ? sql : sql.dup.freeze)
        Statement.new(self, sql, talk { note(with_room { @driver.prepare(sql) }, sql) })
      end

      # Sends many queries before it waits for the first answer. Each runs by itself: one that fails does not keep the
      # others from being run. In a transaction each is sent after the answer to the one before: when the server ends the
      # transaction with an error, the rest is not sent, and their futures raise {TransactionError}.
      #
      # @param limit [Integer] how many are under way at once
      # @yieldparam pipeline [Pipeline] its #query gives a {Pipeline::Future}
      # @return the block's value, once all have been answered
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {#query}; what the server refuses is raised by the future's value
      def pipeline(limit: 64)
        raise ArgumentError, "a pipeline needs a block: db.pipeline { |p| p.query(…) }" unless block_given?

        pipeline = Pipeline.new(limit) { |requests| talk { run_batch(requests) } }
        value = yield pipeline
        pipeline.finish
        value
      end

      # @return [Boolean] whether the server is there and answers
      def ping
        talk { note(@driver.ping, "ping") }
        true
      end

      # @return [Boolean] whether another may have it: it is at rest, in no transaction, and the server has not closed it.
      #   One system call, without waiting.
      def healthy?
        !@talking && !in_transaction? && @driver.healthy?
      end

      # The same as far as we know, without asking the system.
      #
      # @api private for a pool
      def at_rest?
        !@talking && !in_transaction? && @driver.at_rest?
      end

      # Sends what closes are waiting to ride with the next request.
      #
      # @return [self]
      def flush_closes
        talk { @driver.flush_closes } if @driver.closes > 0
        self
      end

      # Sends what closes are waiting unless there are few: a packet of their own for them would be as dear as the one that the
      # next request comes in, and if there is none they are sent after a second.
      #
      # @api private for a pool
      def rest
        flush_closes if @driver.closes > (@driver.closes_when_idle? ? CLOSES_RESTING : 0)
      end

      # Puts back what was changed in the session, so that another may have it.
      #
      # @return [Boolean] whether that worked; true when nothing was changed, and nothing is sent then
      # @api private for a pool
      def tidy
        return true unless @driver.session_changed?

        talk do
          @driver.reset_session.tap { @cache.clear }
        end
      end

      # @return [Integer] how many statements stay prepared to be used again
      def cached_statements
        @cache.size
      end

      # Ends the connection; what the server does at that moment it may finish. Closing twice is harmless.
      def close
        @ended = true
        @driver.close
        nil
      end

      def closed?
        @driver.closed?
      end

      # @api private for a pool: whether it belongs to the process that this one was forked from
      def forked?
        @driver.forked?
      end

      # @return [MySQL::Driver] what is the database's own
      attr_reader :driver

      # @api private for a pool, which is told of transactions
      attr_writer :pool

      # @api private for a pool: who may use it; nil for anybody
      attr_writer :lease

      # @api private
      def run_statement(statement, arguments)
        talk do
          check_transaction(@driver.kind(statement.sql), statement.sql)
          handle = statement.handle
          unless @driver.owns?(handle) # the session was reset since, and all its statements closed
            raise StatementClosed, "this statement belongs to another connection: #{statement.sql}" unless statement.of?(self)

            statement.renew(handle = note(with_room { @driver.prepare(statement.sql) }, statement.sql))
          end
          result = @driver.execute(handle, arguments)
          if stale?(result) && !in_transaction?
            statement.renew(note(@driver.prepare(statement.sql), statement.sql))
            result = @driver.execute(statement.handle, arguments)
          end
          note(result, statement.sql)
        end
      end

      # @api private
      def release_statement(handle)
        @driver.release(handle)
        flush_closes if @driver.closes > CLOSES_WAITING && !@talking && !closed?
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@driver.description}#{" in a transaction" if in_transaction?}#{" closed" if closed?}>"
      end

      private

      # All that talks to the server: by its owner, one after another, and to its end.
      def talk
        check_owner
        ended = @ended # before: a close in another thread may come in the middle
        @talking = true
        begin
          value = yield
          complete = true
          value
        rescue IOError, SystemCallError => error
          lost = true
          raise if error.is_a?(Error)

          raise ConnectionLost, ended ? "this connection to #{@driver.description} is closed (#{error.message}): nothing was sent" : loss(error)
        ensure
          @talking = nil
          unless complete
            @driver.abandon(lost)
            @ended = @driver.closed?
          end
        end
      end

      def loss(error)
        "the connection to #{@driver.description} is lost (#{error.message}); whether what was asked last was done is not known"
      end

      def check_owner
        return unless @talking || @lease || @holder
        return if @driver.forked? # whoever has it is in the parent; the driver refuses to talk, and says why

        raise Busy, "another fiber or thread is in the middle of a query on this connection: give each its own (Heddle::DB::Pool), or let them take turns" if @talking
        raise Busy, "this connection was given back to its pool" if @lease == :none

        check_transaction_owner if @holder
      end

      def perform(sql, arguments)
        keeps = @cache.applies?(self)
        handle = @cache[sql] if keeps # of a statement that needs no second look at its kind
        kind = handle ? :plain : @driver.kind(sql)
        check_transaction(kind, sql)
        @cache.clear unless kind == :plain || kind == :session
        note(run(sql, arguments, keeps && kind == :plain, handle), sql)
      end

      def run(sql, arguments, keep, handle)
        result = keep ? run_cached(sql, arguments, handle) : @driver.query(sql, arguments)
        return result unless result.is_a?(ServerError)

        if @driver.full?(result)
          run_without_room(sql, arguments)
        elsif @driver.unpreparable?(result) && arguments.empty?
          @driver.command(sql)
        else
          result
        end
      end

      def run_cached(sql, arguments, handle)
        if handle
          result = @driver.execute(handle, arguments)
          return result unless stale?(result)

          @cache.delete(sql)
          return result if in_transaction?
        end
        handle, result = @driver.query_keeping(sql, arguments)
        @cache[sql] = handle if handle
        result
      end

      def stale?(result)
        result.is_a?(ServerError) && @driver.stale?(result)
      end

      # The server, all its clients together, has as many statements as it may.
      def run_without_room(sql, arguments)
        give_room
        result = @driver.query(sql, arguments)
        return result unless result.is_a?(ServerError) && @driver.full?(result)
        return @driver.command(sql) if arguments.empty?

        raise StatementLimit, "#{result.message}: the server has as many prepared statements as #{@driver.limit_name} allows, of all its clients together, and a statement with parameters has to be prepared. Raise it, or close statements"
      end

      def with_room
        result = yield
        return result unless result.is_a?(ServerError) && @driver.full?(result)

        give_room
        yield
      end

      def give_room
        @cache.clear
        @driver.flush_closes
      end

      # A batch of a pipeline: their results, or errors.
      def run_batch(requests)
        kinds = requests.map { |sql, _| @driver.kind(sql) }
        requests.each_with_index { |(sql, _), index| check_transaction(kinds[index], sql) }
        plain = kinds.all? { |kind| kind == :plain || kind == :session }
        @cache.clear unless plain
        @driver.batch(requests, @driver.in_transaction? || !plain) { |result, index| note_answer(result, requests[index].first) }
      end

      # Raises what the server refused.
      def note(result, sql)
        return note_refusal(result, sql) if result.is_a?(ServerError)

        note_state unless @frames.empty?
        result
      end

      def note_refusal(error, sql)
        note_answer(error, sql)
        raise error
      end

      # An error does not say whether the server has ended the transaction with it: then the server is asked.
      #
      # @return [TransactionError, nil] why nothing more of a pipeline may be sent
      def note_answer(result, sql)
        return note_state unless result.is_a?(ServerError)

        result.sql = sql
        give_up(result) if @driver.final?(result)
        return unless (open = in_transaction?) || !@frames.empty?

        @driver.ping
        note_state(result)
        TransactionError.new("this statement was not sent: the server ended the transaction (#{result.message})") if open && !in_transaction?
      end

      # The server closes the connection behind this error.
      def give_up(error)
        @driver.end_without_a_word
        raise ConnectionLost, "#{@driver.description} says #{error.message} (#{error.code}), and has closed the connection", cause: error
      end

      def only_row(result, sql)
        raise UnexpectedRows, "#{result.size} rows instead of one: #{sql}" unless result.size == 1

        result[0]
      end
    end
  end
end

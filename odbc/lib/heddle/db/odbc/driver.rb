# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # A connection by an ODBC driver, as {DB::Driver} describes it.
      #
      # @api private
      class Driver
        include DB::Driver

        # Seconds in which the driver must answer a cancel.
        ANSWER_TIME = 1
        # Seconds after which a connection in its pool may have died: the driver is asked.
        RESTED = 1
        # Seconds in which it must answer that.
        CHECK_TIME = 1
        ALL_ROWS = (1 << 62) - 1
        # Types of SQLTables, without temporary tables, indexes and the like.
        TABLES = ["TABLE", "VIEW", "SYSTEM TABLE", "SYSTEM VIEW", "MATERIALIZED VIEW", "FOREIGN TABLE"].freeze
        private_constant :TABLES, :ANSWER_TIME, :RESTED, :CHECK_TIME, :ALL_ROWS

        class << self
          # @param url [String, URI] see {ConnectionString}
          # @param options [Hash{Symbol => Object}] as given to {DB.connect}
          # @return [Hash{Symbol => Object}] what both stand for, checked
          # @raise [ArgumentError]
          def settings(url, options) = ConnectionString.settings(url, options)

          # @param options see {.settings}
          # @return [Driver]
          def connect(**options) = new(**options)
        end

        # @api private
        def initialize(string:, timeout: nil, connect_timeout: timeout, encoding: nil, time_zone: :utc)
          Simulation.refuse("ODBC") if defined?(Simulation.world) && Simulation.world
          @string = string
          @calls = Calls.new(encoding, time_zone == :local)
          @client = @calls.client
          log_in(connect_timeout)
          @server = Server.new(@client.abilities)
          @client.refuse_nul if @server.texts_end_at_nul?
          @sql = SQL.new(@server)
          @lent = false
          @used = Clock.now
          limited(connect_timeout) { @session = Session.new(self, @server, @client, @sql, time_zone) }
          @timeout = timeout
          complete = true
        ensure
          @calls&.disconnect unless complete
        end

        def version = @server.version

        def database_type = @server.type

        def description = "#{@server ? @server.name : "a database"} by ODBC (#{@string})"

        # ---- statements

        def kind(sql)
          kind = @sql.kind(sql)
          @session.record(kind, sql)
          kind
        end

        def placeholders(sql) = @sql.placeholders(sql)

        # @raise [ArgumentError] when the database has none
        def identifier_quote
          return @server.quote unless @server.quote.strip.empty?

          raise ArgumentError, "#{@server.name} has no quotes for names, says its driver #{@server.driver}"
        end

        def query(sql, arguments)
          complete_run { |client| client.run(sql, arguments, ALL_ROWS, alone?(sql)) }
        end

        def query_prepared(sql, arguments)
          handle = nil
          result = complete_run(cached: true) { |client| handle = client.run(sql, arguments, ALL_ROWS, alone?(sql)) }
          return [with_calls(handle, sql), result] unless result.is_a?(ServerError)

          handle.release
          [nil, result]
        end

        # SQLite carries a pragma out when it is prepared.
        def prepare(sql)
          kind(sql)
          timed do
            handle = nil
            outcome = run { |client| handle = client.prepare(sql, alone?(sql)) }
            next refused(outcome) if outcome.is_a?(Calls::Failure)

            @active = nil
            with_calls(handle, sql)
          end
        end

        def execute(handle, arguments)
          @session.record_call if handle.calls
          complete_run(cached: true) do |client|
            @lent = true
            client.execute(handle, arguments, ALL_ROWS)
          end
        end

        def command(sql) = query(sql, [])

        # A refusal is an answer, too.
        def ping
          result = command("select 1")
          (result.is_a?(ServerError) && !final?(result)) ? done : result
        end

        def release(handle) = handle.release

        def owns?(handle) = @client.owns?(handle)

        def closes = @client.closes

        # After a deadline has passed they wait for the next call.
        def flush_closes
          timed { @calls.run(&:flush) } unless Heddle.remaining&.zero?
        end

        # {#stale?} is false: a driver does not tell whether a statement that failed has begun: a procedure may commit,
        # and then raise any error. The next run of a statement that failed prepares it again.

        # PostgreSQL's driver reports a connection that was lost in a SQLPrepare by the state of any error.
        def final?(error)
          ErrorClasses.lost?(@server.family, error) || (error.sql_state == ErrorClasses::ANY && dead?)
        end

        def close_silently = @calls.disconnect

        def open_cursor(sql, arguments)
          timed do
            outcome = run { |client| client.run(sql, arguments, 1, alone?(sql)) }
            next refused(outcome) if outcome.is_a?(Calls::Failure)

            failure = fetch_rest(@active) unless @server.several_statements?
            next refused(failure) if failure

            handle, @active = @active, nil
            Cursor.new(self, handle)
          end
        end

        # @return [Array<Array>, ServerError]
        def fetch(handle, count)
          timed do
            if handle.waiting < count && handle.open?
              outcome = @calls.run { |client| client.fetch(handle, count) }
              next error_of(outcome) if outcome.is_a?(Calls::Failure)
            end
            handle.take(count)
          end
        end

        # ---- transactions

        def begin_transaction(isolation:, read_only:, deferrable:)
          raise ArgumentError, "deferrable: is PostgreSQL's; ODBC has no such transactions" if deferrable

          @server.need_transactions
          number = @server.isolation(isolation)
          result = control { |client| client.begin_transaction(number) }
          return [result] if result.is_a?(ServerError) || !read_only

          # ODBC's own attribute is a hint that hardly a driver heeds.
          result = command(@server.read_only)
          rollback if result.is_a?(ServerError)
          [result]
        end

        def in_transaction? = @client.manual? && !closed?

        def commit = control { |client| client.end_transaction(true) }

        def rollback = control { |client| client.end_transaction(false) }

        def savepoint(name) = savepoint_command(:begin, name)

        def release_savepoint(name) = savepoint_command(:release, name)

        def rollback_to_savepoint(name) = savepoint_command(:rollback, name)

        # In PostgreSQL every error dooms the transaction, unless its driver has set a savepoint in front of the
        # statement: the server is asked.
        def effect_of(error)
          effect = super
          return effect unless effect == :none && @server.family == :postgresql

          command("select 1").is_a?(ServerError) ? :doomed : :none
        end

        # ---- the session

        def session_changed? = @session.changed?

        def reset_session = timed { @session.reset }

        def settle_session = @session.settle

        # ---- tables

        # By SQLTables. Its names are patterns.
        def tables(schema, name)
          schema ||= current_schema
          names = @server.schemas_are_catalogs? ? [schema, nil] : [nil, schema && pattern(schema)]
          patterns = [*names, name && pattern(name), @server.table_types]
          found = complete_run { |client| client.tables(patterns, ALL_ROWS) }
          return found if found.is_a?(ServerError)

          rows = found.rows.select { |row| TABLES.include?(row[3]) && (name.nil? || row[2] == name) }
          Result.new(columns: [found.columns[2]], rows: rows.map { |row| [row[2]] }.uniq.sort)
        end

        # ---- life

        # The driver is asked only of a connection that has rested. Some drivers ask the server then.
        def healthy?
          return false unless at_rest?
          return true if Clock.now - @used < RESTED

          Heddle.deadline(CHECK_TIME) { @calls.alive? }
        rescue DeadlineExceeded
          @calls.disconnect
          remaining = Heddle.remaining
          raise if remaining && remaining <= 0 # of a deadline around us

          false
        end

        def at_rest? = !closed? && !@client.busy?

        def closed? = @client.left?

        def forked? = @client.forked?

        # Disconnects, without waiting for it: some drivers talk to the server.
        def close = @calls.disconnect

        # A call that runs is cancelled. Outside of a transaction the connection goes on once the driver has answered;
        # else it is closed.
        def abandon(lost)
          give_up(lost) unless closed?
        end

        private

        # A kept statement runs without another look at its text.
        def with_calls(handle, sql)
          handle.calls = @sql.calls?(sql)
          handle
        end

        # Whether the driver must not be asked for a result behind that of this text.
        def alone?(sql) = @server.splits_routines? && @sql.compound?(sql)

        def timed(&block) = @timeout ? Heddle.deadline(@timeout, &block) : yield

        # Whether the driver says so. An error is at hand, which no deadline replaces.
        def dead?
          !Heddle.shield(CHECK_TIME) { @calls.alive? }
        rescue DeadlineExceeded
          true
        end

        # A second interrupt in here leaves the connection unsound.
        def give_up(lost)
          active, @active = @active, nil
          lent, @lent = @lent, false
          stopped = !lost && (!@client.busy? || (!in_transaction? && stopped?))
          sound = stopped && (!active || !lent || cursor_closed?(active))
        ensure
          active&.release unless lent && sound
          @calls.disconnect unless sound
        end

        # The shield's own limit is there for a driver whose cancel is cut off by nothing else.
        def stopped?
          Heddle.shield(ANSWER_TIME * 2) do
            @calls.stop(ANSWER_TIME) { |failure| error_of(failure).is_a?(QueryCanceled) }
          end
        end

        # A statement of which somebody else keeps the handle runs again later.
        def cursor_closed?(handle)
          return true unless handle.open? || handle.more?

          Heddle.shield(ANSWER_TIME) { @calls.run { |client| client.close_cursor(handle) } == handle }
        rescue IOError, DeadlineExceeded
          false
        end

        def log_in(seconds)
          outcome = limited(seconds) { @calls.run { |client| client.connect(@string.secret, seconds.to_f.ceil) } }
          return unless outcome.is_a?(Calls::Failure)

          message = message_of(outcome.messages.first)
          raise LoginFailed, "no connection by ODBC (#{@string}): #{message} (#{outcome.state})#{hint(outcome.state)}"
        end

        # A part of the connect.
        def limited(seconds, &block)
          Heddle.deadline(seconds, &block)
        rescue DeadlineExceeded => error
          remaining = Heddle.remaining
          raise if remaining && remaining <= 0 # of a deadline around us

          raise ConnectTimeout,
            "no connection by ODBC (#{@string}) within connect_timeout: (#{seconds} s)", cause: error
        end

        def hint(state)
          return unless %w[IM002 01000].include?(state)

          "; `odbcinst -q -s` lists the sources (DSN), `odbcinst -q -d` the drivers, and `odbcinst -j` says where " \
            "unixODBC looks for them"
        end

        # Runs a call of a statement, which is to be given up if the operation does not come to its end.
        #
        # @return [Handle, Calls::Failure]
        def run
          @calls.run { |client| @active = yield client }
        ensure
          @used = Clock.now
        end

        # Runs a statement with all its rows and results.
        #
        # @param cached [Boolean] whether the statement stays prepared
        # @return [Result, ServerError]
        def complete_run(cached: false, &start)
          timed do
            outcome = run(&start)
            result = outcome.is_a?(Calls::Failure) ? error_of(outcome) : results_of(outcome)
            @active.release unless cached
            @active = nil
            @lent = false
            result
          end
        end

        def refused(failure)
          @active.release
          @active = nil
          error_of(failure)
        end

        # A procedure may have any number of results.
        #
        # @return [Result, ServerError] the first, with the others behind it
        def results_of(handle)
          parts = []
          loop do
            rows = rows_of(handle) if handle.rows?
            return error_of(rows) if rows.is_a?(Calls::Failure)

            parts << {columns: (handle.columns if rows), rows: rows, affected_rows: rows ? 0 : handle.affected,
                      warnings: handle.warnings}
            break unless handle.more?

            failure = @calls.run { |client| client.next_result(handle, ALL_ROWS) }
            return error_of(failure) if failure.is_a?(Calls::Failure)
          end
          parts.reverse_each.inject(nil) { |following, part| Result.new(**part, following: following) }
        end

        # @return [Array<Array>, Calls::Failure] all rows of the current result
        def rows_of(handle)
          rows = handle.take(ALL_ROWS)
          while handle.open?
            failure = @calls.run { |client| client.fetch(handle, ALL_ROWS) }
            return failure if failure.is_a?(Calls::Failure)

            rows.concat(handle.take(ALL_ROWS))
          end
          rows
        end

        # @return [Calls::Failure, nil]
        def fetch_rest(handle)
          while handle.open?
            outcome = @calls.run { |client| client.fetch(handle, ALL_ROWS) }
            return outcome if outcome.is_a?(Calls::Failure)
          end
        end

        # @return [Result, ServerError]
        def control(&start)
          outcome = timed { @calls.run(&start) }
          @used = Clock.now
          outcome.is_a?(Calls::Failure) ? error_of(outcome) : done
        end

        def done = Result.new

        # Where a statement finds tables without the name of their schema; nil: everywhere.
        def current_schema
          text = @server.current_schema
          result = command(text) if text
          result.is_a?(Result) ? result.first&.first : nil
        end

        # SQL_SEARCH_PATTERN_ESCAPE
        def pattern(name) = name.gsub(/[%_\\]/) { |mark| "#{@server.escape}#{mark}" }

        def savepoint_command(what, name)
          text = @server.savepoints.fetch(what)
          text ? command(format(text, name)) : done
        end

        def error_of(failure)
          message, *further = failure.messages.map { |text| message_of(text) }
          error_class = ErrorClasses.of(@server.family, failure.state, failure.code, message.to_s)
          detail = {detail: further.join("\n")} unless further.empty?
          error_class.new(message, sql_state: failure.state, code: failure.code, **detail.to_h)
        end

        # Without the names of the programs that it came through, [unixODBC][Driver][Server], and what PostgreSQL's
        # driver puts around it.
        def message_of(text)
          text = text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
          text = text.sub(/\A(?:\[[^\]]*\]\s*)+/, "").sub(/\AERROR:\s+/, "").sub(/;\nError while [^\n]*\z/, "")
          text.strip.gsub(/[[:cntrl:]]/) { |control| format("\\x%02X", control.ord) }
        end
      end
    end
  end
end

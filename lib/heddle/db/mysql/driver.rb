# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # A connection to MySQL or MariaDB, as {DB::Driver} describes it.
      #
      # @api private
      class Driver
        include WireDriver

        PORT = 3306
        UNPREPARABLE = [1295, 1235].freeze # not in this protocol, yet
        FULL = 1461
        private_constant :UNPREPARABLE, :FULL

        # A cursor of the server's, or a result that came without one; +handle+ is nil for a statement sent as text.
        Cursor = Struct.new(:driver, :handle, :rows, :description) do
          def fetch(count)
            return rows.shift(count) if rows

            done? ? [] : driver.fetch(self, count)
          end

          def columns = handle ? handle.columns : description

          def done? = @done

          def done! = @done = true

          def close = handle && driver.release(handle)
        end
        private_constant :Cursor

        # Makes another connection to the same server, from which the {Killer} kills a query.
        Server = Struct.new(:options) do
          # @return [Driver]
          def connect(seconds)
            Driver.connect(**options, timeout: seconds, connect_timeout: seconds, session: false, kill_queries: true)
          end

          # @return [Array<Module>] what that raises where the server cannot be reached
          def failures = [Error, *(OpenSSL::SSL::SSLError if Object.const_defined?("OpenSSL::SSL"))]

          # Without the password, which is among the options.
          def inspect = "#<Heddle::DB::MySQL::Driver::Server>"
          alias_method :to_s, :inspect
        end
        private_constant :Server

        class << self
          # @param url [String, URI]
          # @param options [Hash{Symbol => Object}] as given to {DB.connect}
          # @return [Hash{Symbol => Object}] what both stand for, checked
          # @raise [ArgumentError]
          def settings(url, options) = Options.checked(Address.options(url).merge(options), OptionChecks::ALL)

          # Says that statements of several tasks may be in flight, see {Pool#query}.
          def multiplexes? = true

          # @param options see {.settings}
          # @return [Driver]
          def connect(**options) = new(options)
        end

        # @api private
        def initialize(options)
          @options = options
          set_up(**options)
        end

        attr_reader :version
        # @return [Integer] the server's name for this connection
        attr_reader :thread
        # How the server's process list shows this connection, see {Killer.marks}; nil where nothing is killed.
        #
        # @api private
        attr_reader :marks

        def database_type = @mariadb ? :mariadb : :mysql

        def description = "#{@mariadb ? "MariaDB" : "MySQL"} at #{@stream.peer}"

        # Whether a DATETIME is in the time zone of this process, or in UTC; at first as +time_zone+ says.
        #
        # @param local [Boolean]
        def local_times=(local)
          @protocol.local_times = local
        end

        # @return [Boolean] whether a backslash is special in strings of SQL (not with NO_BACKSLASH_ESCAPES)
        def backslash_escapes? = @protocol.backslash_escapes?

        # ---- statements

        def kind(sql)
          kind = Protocol.kind_of(sql)
          @session&.record(kind, sql) unless kind == :plain
          kind
        end

        def placeholders(sql)
          Protocol.placeholders(sql) || raise(ArgumentError, "the places of this statement's parameters depend on " \
            "the server, because it has a backslash or a comment such as /*! … */: write them as ?, without a list, " \
            "and bind the text with the backslash: #{sql}")
        end

        def identifier_quote = "`"

        # @return [Result, ServerError]
        # @raise [StatementLimit]
        def query(sql, arguments)
          handle, result = run_new(sql, arguments)
          release(handle) if handle
          result
        end

        def query_prepared(sql, arguments) = run_new(sql, arguments, cached: true)

        def prepare(sql)
          result = prepare_once(sql)
          return result unless full?(result)

          give_room
          prepare_once(sql)
        end

        def execute(handle, arguments)
          result = super
          return result unless full?(result)

          give_room
          super
        end

        def when_full(&make_room)
          @make_room = make_room
        end

        def ping
          @protocol.send_command(0x0e, "")
          @protocol.receive_text
        end

        def closes_when_idle? = !@stream.tls?

        def final?(error) = Protocol.final?(error)

        def open_cursor(sql, arguments)
          # For a cursor over an analysis MariaDB answers with the columns of the SELECT, and then of the analysis.
          handle, result = run_new(sql, arguments, cached: true, cursor: Protocol.way_of(sql) == :prepared)
          if result.is_a?(ServerError)
            release(handle) if handle
            return result
          end
          return Cursor.new(self, handle) if handle && @protocol.cursor?

          Cursor.new(self, handle, result.rows.dup, result.description)
        end

        # @return [Array<Array>, ServerError]
        def fetch(cursor, count)
          @protocol.send_fetch(cursor.handle, count)
          rows = @protocol.receive_fetched(cursor.handle.columns)
          cursor.done! unless @protocol.more_rows?
          rows
        end

        # Prepares new statements first, then runs all. In a transaction each statement is sent after the answer to the
        # one before: an error may roll the transaction back, and a statement that was already sent would then run
        # outside the transaction, and be committed.
        def batch(requests, plain, &block)
          handles = prepare_all(requests)
          return run_singly(requests, handles, &block) if in_transaction? || !plain

          results = run_together(requests, handles)
          results.each_with_index(&block)
          results
        ensure
          handles.each_value { |handle| release(handle) if handle.is_a?(Prepared) } if handles.is_a?(Hash)
        end

        # ---- transactions

        def begin_transaction(isolation:, read_only:, deferrable:)
          raise ArgumentError, "deferrable: transactions do not exist in MySQL and MariaDB" if deferrable

          commands = []
          commands << "SET TRANSACTION ISOLATION LEVEL #{isolation_level(isolation)}" if isolation
          commands << "START TRANSACTION#{" READ ONLY" if read_only}"
          commands.each { |sql| @protocol.send_query(sql) }
          commands.map { @protocol.receive_text }
        end

        # An error does not say whether the server has ended the transaction with it: the server is asked.
        def effect_of(error)
          with_diagnostics { ping }
          super
        end

        def rollback = with_diagnostics { super }

        def rollback_to_savepoint(name) = with_diagnostics { super }

        # ---- the session

        # Variables, the database, locks, temporary tables.
        def session_changed? = @session&.changed?

        def reset_session = @session.reset

        def settle_session = @session.settle

        def multiplexing_refusal
          return if @direct

          "it runs a new statement only in the round trip after the one that prepares it, unlike MariaDB since 10.2"
        end

        # ---- tables

        def tables(schema, name)
          sql = "select table_name from information_schema.tables where table_schema = coalesce(?, database())"
          name ? query("#{sql} and table_name = ?", [schema, name]) : query("#{sql} order by 1", [schema])
        end

        private

        def goodbye = "\x01\0\0\0\x01" # COM_QUIT

        def stop_query
          Killer.kill(Server.new(@options), @thread, @marks) if @marks
        end

        # The options as {Options} has checked them.
        def set_up(host: "127.0.0.1", port: PORT, socket: nil, tls: nil, timeout: nil, connect_timeout: timeout,
          time_zone: :utc, charset: "utf8mb4", booleans: false, kill_queries: true, session: true, **login)
          @protocol = Protocol.new
          address = socket || (host.include?(":") ? "[#{host}]:#{port}" : "#{host}:#{port}")
          outcome = Heddle.deadline(connect_timeout) do
            @stream = socket ? Stream.unix(socket) : Stream.connect(host, port)
            @protocol.open(@stream)
            @marks = Killer.marks(@stream.to_io) if kill_queries
            login = Login.new(@protocol, tls: tls, host: host, charset: charset, secure: !socket.nil?, **login)
            login.perform
            settle(login, charset, time_zone, booleans, session)
          end
          @protocol.timeout = timeout
          complete = outcome
        rescue DeadlineExceeded => error
          remaining = Heddle.remaining
          raise if remaining && remaining <= 0 # of a deadline around us

          step = login.is_a?(Login) ? login.step : "the connect itself"
          raise ConnectTimeout,
            "no connection to #{address} within connect_timeout: (#{connect_timeout} s), while waiting for #{step}",
            cause: error
        rescue IOError, SystemCallError, SocketError, OpenSSL::SSL::SSLError => error
          raise if error.is_a?(Error)
          if @stream.nil? || error.is_a?(OpenSSL::SSL::SSLError)
            raise Error.mark(error, "no connection to #{address}: #{error.message}")
          end

          raise ConnectionLost, "the connection to #{address} was lost during the log-in (#{error.message})"
        ensure
          @stream&.close unless complete
        end

        def settle(login, charset, time_zone, booleans, session)
          @version = login.version
          @thread = login.thread
          @mariadb = login.mariadb?
          since = @version[/(\d+\.\d+)\.\d+-mariadb/i, 1] || "0"
          @direct = @mariadb && (since.split(".").map(&:to_i) <=> [10, 2]) >= 0
          @protocol.configure(login.capabilities, CHARSETS.fetch(charset).first, time_zone == :local, booleans, @direct,
            !@mariadb)
          return true unless session

          @session = SessionState.new(@protocol, login, charset, SessionZone.zone(self, time_zone))
          result = @session.set_up
          return true unless result.is_a?(ServerError)

          raise LoginFailed, "#{@stream.peer} refuses to set the session's time zone to UTC: #{result.message}"
        end

        # Runs a statement that was not prepared yet.
        #
        # @return [(Prepared, Result), (Prepared, ServerError), (nil, Result), (nil, ServerError)] the statement if it
        #   is still prepared
        def run_new(sql, arguments, cached: nil, cursor: nil)
          way = arguments.empty? ? Protocol.way_of(sql) : :prepared
          return [nil, run_text(sql, way)] unless way == :prepared

          handle, result = run_prepared(sql, arguments, cached, cursor)
          text?(result, arguments) ? [nil, command(sql)] : [handle, unlimited(result)]
        end

        def run_prepared(sql, arguments, cached, cursor)
          both = @protocol.run_new(sql, arguments, cached, cursor)
          return both if both.is_a?(Array)
          return [nil, both] unless both.nil? || full?(both)

          handle = prepare(sql)
          return [nil, handle] if handle.is_a?(ServerError)

          sent = @protocol.send_execute(handle, arguments, cursor)
          [handle, (sent == true) ? @protocol.receive_result(handle) : sent]
        rescue ArgumentError, TypeError, EncodingError
          release(handle) if handle.is_a?(Prepared)
          raise
        end

        # The server shows the diagnostics of what it answered last: of the execution that was sent together with a
        # refused statement. It is to refuse the statement alone.
        def run_text(sql, way)
          if way == :diagnostics && (refused = @protocol.refused)
            handle = prepare_once(refused)
            release(handle) unless handle.is_a?(ServerError)
          end
          command(sql)
        end

        # For requests that leave the server's diagnostics as they are.
        def with_diagnostics
          refused = @protocol.refused
          result = yield
          @protocol.refused = refused
          result
        end

        def prepare_once(sql)
          @protocol.send_prepare(sql)
          @protocol.receive_prepared(sql)
        end

        # Whether the statement was refused before it began, and may go as text: one of the few that cannot be prepared,
        # or any for which the server has no room. An error of a statement that has begun may have the same number.
        def text?(result, arguments)
          arguments.empty? && refused?(result) && (UNPREPARABLE.include?(result.code) || full?(result))
        end

        def refused?(result) = result.is_a?(ServerError) && result.unprepared

        # Whether the server has no room for another prepared statement, over all clients.
        def full?(result) = refused?(result) && result.code == FULL

        def give_room
          @make_room&.call
          flush_closes
        end

        def unlimited(result)
          return result unless full?(result)

          raise StatementLimit, "#{result.message}: a statement with parameters must be prepared, and the prepared " \
            "statements of all clients together have reached max_prepared_stmt_count. Raise it, or close statements"
        end

        # Prepares the statements of a pipeline in one round trip.
        #
        # @return [Hash{String => Prepared, ServerError}] without those that go as text
        def prepare_all(requests)
          needed = requests.select { |sql, arguments| !arguments.empty? || Protocol.way_of(sql) == :prepared }
          texts = needed.map(&:first)
          handles = prepare_together(texts.uniq)
          full = handles.select { |_, handle| full?(handle) }.keys
          return handles if full.empty?

          give_room
          handles.merge(prepare_together(full))
        end

        def prepare_together(texts)
          texts.each { |sql| @protocol.send_prepare(sql) }
          texts.zip(in_order(texts) { |sql| @protocol.receive_prepared(sql) }).to_h
        end

        # Reads the answers. An error with which the server closes the connection is the answer to all that follow.
        def in_order(requests)
          ended = nil
          requests.map do |request|
            ended || yield(request).tap { |answer| ended = answer if answer.is_a?(ServerError) && final?(answer) }
          end
        end

        def run_singly(requests, handles)
          stopped = nil
          requests.each_with_index.map do |(sql, arguments), index|
            next stopped if stopped

            result = answer_to(send_one(sql, arguments, handles[sql]))
            stopped = yield result, index
            result
          end
        end

        def run_together(requests, handles)
          results = []
          sent = []
          receive = -> { results.concat(in_order(sent) { |request| answer_to(request) }) }
          requests.each do |sql, arguments|
            request = send_one(sql, arguments, handles[sql])
            if request == false # the statement is to be prepared for values of other types
              receive.call
              sent.clear
              request = send_one(sql, arguments, handles[sql])
            end
            sent << request
          end
          receive.call
        end

        # @return [Prepared, :text, false, Exception] whose answer is owed; false if nothing can be sent before the
        #   answers that are owed; or the error
        def send_one(sql, arguments, handle)
          if handle.nil? || text?(handle, arguments)
            @protocol.send_query(sql)
            return :text
          end
          return unlimited(handle) if handle.is_a?(ServerError)

          sent = @protocol.send_execute(handle, arguments, nil)
          (sent == true) ? handle : sent
        rescue ArgumentError, TypeError, EncodingError, StatementLimit => error
          error
        end

        def answer_to(request)
          case request
          when Prepared then @protocol.receive_result(request)
          when :text then @protocol.receive_text
          else request
          end
        end
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # @api private A connection to MySQL or MariaDB, as {DB::Driver} describes it.
      class Driver
        include WireDriver

        PORT = 3306
        UNPREPARABLE = [1295, 1235].freeze # not in this protocol, yet
        FULL = 1461
        STALE = [1243, 1615].freeze # unknown, or to be prepared again
        private_constant :UNPREPARABLE, :FULL, :STALE

        # A cursor of the server's, or rows that came without one.
        Cursor = Struct.new(:driver, :handle, :rows) do
          def fetch(count)
            return rows.shift(count) if rows

            done? ? [] : driver.fetch(self, count)
          end

          def columns = handle.columns

          def done? = @done

          def done! = @done = true

          def close = driver.release(handle)
        end
        private_constant :Cursor

        # Makes another connection to the same server, from which the {Killer} kills a query.
        Server = Struct.new(:options) do
          # @return [Driver]
          def connect(seconds)
            Driver.connect(**options, timeout: seconds, connect_timeout: seconds, session: false, kill_queries: true)
          end

          # @return [Array<Module>] what that raises where the server cannot be reached
          def failures = [Error, *(OpenSSL::SSL::SSLError if defined?(OpenSSL::SSL))]

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

          # @param options see {.settings}
          # @return [Driver]
          def connect(**options) = new(options)
        end

        # @api private
        def initialize(options)
          @options = options
          set_up(**options)
        end

        # @return [String] the server's version
        attr_reader :version
        # @return [Integer] the server's name for this connection
        attr_reader :thread
        # @api private what the server tells this connection by, see {Killer.marks}; nil where nothing is killed
        attr_reader :marks

        # @return [Boolean]
        def mariadb? = @mariadb

        def database_type = mariadb? ? :mariadb : :mysql

        def description = "#{mariadb? ? "MariaDB" : "MySQL"} at #{@stream.peer}"

        # Whether a DATETIME is in the time zone of this process, or in UTC; at first as +time_zone+ says.
        #
        # @param local [Boolean]
        def local_times=(local)
          @link.local_times = local
        end

        # @return [Boolean] whether a backslash is special in strings of SQL (not with NO_BACKSLASH_ESCAPES)
        def backslash_escapes? = @link.backslash_escapes?

        # ---- statements

        # The kind of a statement that is about to be sent: :plain, :session (like a plain one, but it may change the
        # state of the session), :commit (it would end a transaction) or :other.
        def kind(sql)
          kind = Link.kind_of(sql)
          @session&.note(kind, sql) unless kind == :plain
          kind
        end

        def placeholders(sql)
          Link.placeholders(sql) || raise(ArgumentError, "the places of this statement's parameters depend on the " \
            "server, because it has a backslash or a comment such as /*! … */: write them as ?, without a list, and " \
            "bind the text with the backslash: #{sql}")
        end

        def identifier_quote = "`"

        # @return [Result, ServerError]
        def query(sql, arguments)
          result = @link.run_new(sql, arguments, nil, nil)
          unless result
            handle, result = query_in_two(sql, arguments)
            release(handle) if handle
          end
          unpreparable?(result, arguments) ? command(sql) : result
        end

        def query_keeping(sql, arguments)
          handle, result = prepare_and_run(sql, arguments)
          unpreparable?(result, arguments) ? [nil, command(sql)] : [handle, result]
        end

        # @return [Prepared, ServerError]
        def prepare(sql)
          @link.send_prepare(sql)
          @link.receive_prepared
        end

        # @return [Result, ServerError]
        def ping
          @link.send_command(0x0e, "")
          @link.receive_text
        end

        # Whether closes are sent when nothing is asked for a second.
        def closes_when_idle? = !@stream.tls?

        def full?(error) = error.code == FULL

        def stale?(error) = STALE.include?(error.code)

        # Whether the server closes the connection behind this error.
        def final?(error) = Link.final?(error)

        def limit_name = "max_prepared_stmt_count"

        # @return [Cursor, ServerError]
        def open_cursor(sql, arguments)
          handle, result = prepare_and_run(sql, arguments, cursor: true)
          return Cursor.new(self, handle, @link.cursor? ? nil : result.rows.dup) unless result.is_a?(ServerError)

          release(handle) if handle
          result
        end

        # @return [Array<Array>, ServerError]
        def fetch(cursor, count)
          @link.send_fetch(cursor.handle, count)
          rows = @link.receive_fetched(cursor.handle.columns)
          cursor.done! unless @link.more_rows?
          rows
        end

        # Prepares new statements first, then runs all. In a transaction each statement is sent after the answer to the
        # one before: an error may roll the transaction back, and a statement that was already sent would then run
        # outside the transaction, and be committed.
        def batch(requests, plain)
          handles = requests.map(&:first).uniq
          handles.each { |sql| @link.send_prepare(sql) }
          handles = handles.to_h { |sql| [sql, @link.receive_prepared] }
          return run_singly(requests, handles) { |result, index| yield result, index } if in_transaction? || !plain

          flights = requests.map { |sql, arguments| send_prepared(handles.fetch(sql), arguments) }
          results = flights.map { |flight| landed(flight) }
          results.each_with_index { |result, index| yield result, index }
        ensure
          handles.each_value { |handle| release(handle) if handle.is_a?(Prepared) } if handles.is_a?(Hash)
        end

        # ---- transactions

        # @return [Array<Result, ServerError>]
        def begin_transaction(isolation:, read_only:, deferrable:)
          raise ArgumentError, "deferrable: transactions do not exist in MySQL and MariaDB" if deferrable

          commands = []
          commands << "SET TRANSACTION ISOLATION LEVEL #{isolation_level(isolation)}" if isolation
          commands << "START TRANSACTION#{" READ ONLY" if read_only}"
          commands.each { |sql| @link.send_query(sql) }
          commands.map { @link.receive_text }
        end

        # An error does not say whether the server has ended the transaction with it: the server is asked.
        def effect_of(error)
          ping
          super
        end

        # ---- the session

        # @return [Boolean] whether something was changed (variables, the database, locks, temporary tables) since the
        #   login
        def session_changed? = @session&.changed?

        # Puts the session back as the login left it, and closes all prepared statements.
        #
        # @return [Boolean] whether it worked
        def reset_session = @session.reset

        def settle_session = @session.settle

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
          @link = Link.new
          address = socket || (host.include?(":") ? "[#{host}]:#{port}" : "#{host}:#{port}")
          outcome = Heddle.deadline(connect_timeout) do
            @stream = socket ? Stream.unix(socket) : Stream.connect(host, port)
            @link.open(@stream)
            @marks = Killer.marks(@stream.to_io) if kill_queries
            login = Login.new(@link, tls: tls, host: host, charset: charset, secure: !socket.nil?, **login)
            login.perform
            settle(login, charset, time_zone, booleans, session)
          end
          @link.timeout = timeout
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
          direct = @mariadb && (@version[/(\d+\.\d+)\.\d+-mariadb/i, 1] || "0").split(".").map(&:to_i).<=>([10, 2]) >= 0
          @link.configure(login.capabilities, CHARSETS.fetch(charset).first, time_zone == :local, booleans, direct)
          return true unless session

          @session = SessionState.new(@link, login, charset, SessionZone.zone(self, time_zone))
          result = @session.set_up
          return true unless result.is_a?(ServerError)

          raise LoginFailed, "#{@stream.peer} refuses to set the session's time zone to UTC: #{result.message}"
        end

        # The statement, which stays prepared, and its result.
        def prepare_and_run(sql, arguments, cursor: nil)
          both = @link.run_new(sql, arguments, true, cursor)
          return query_in_two(sql, arguments, cursor: cursor) unless both

          both.is_a?(ServerError) ? [nil, both] : both
        end

        # Whether it is one of the few statements that only go as text.
        def unpreparable?(result, arguments)
          result.is_a?(ServerError) && arguments.empty? && UNPREPARABLE.include?(result.code)
        end

        def query_in_two(sql, arguments, cursor: nil)
          handle = prepare(sql)
          return [nil, handle] if handle.is_a?(ServerError)

          @link.send_execute(handle, arguments, cursor)
          [handle, @link.receive_result(handle)]
        rescue ArgumentError, TypeError, EncodingError
          release(handle) if handle.is_a?(Prepared)
          raise
        end

        def run_singly(requests, handles)
          stopped = nil
          requests.each_with_index.map do |(sql, arguments), index|
            next stopped if stopped

            result = landed(send_prepared(handles.fetch(sql), arguments))
            stopped = yield result, index
            result
          end
        end

        def landed(flight)
          flight.is_a?(Prepared) ? @link.receive_result(flight) : flight
        end

        # The statement when its answer is owed.
        def send_prepared(handle, arguments)
          return handle if handle.is_a?(ServerError)

          @link.send_execute(handle, arguments, nil)
          handle
        rescue ArgumentError, TypeError, EncodingError => error
          error
        end
      end
    end
  end
end

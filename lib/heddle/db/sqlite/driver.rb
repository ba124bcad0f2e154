# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # A connection to an SQLite database, as {DB::Driver} describes it. An operation that is interrupted does not
      # close the connection: SQLite stops at once, and nothing is owed.
      #
      # @api private
      class Driver
        include DB::Driver

        # Flags of sqlite3_open_v2: this process sees to it that one fiber at a time uses a connection (NOMUTEX), and no
        # two connections share a cache.
        READ_ONLY = 0x01
        READ_WRITE = 0x02
        CREATE = 0x04
        URI_NAME = 0x40
        ALWAYS = 0x8000 | 0x40000
        # Flags of sqlite3_create_function_v2.
        DETERMINISTIC = 0x800
        DIRECT_ONLY = 0x80000
        # Result codes.
        OK = 0
        BUSY = 5
        LOCKED = 6
        DONE = 101
        EMPTY = [].freeze
        private_constant :READ_ONLY, :READ_WRITE, :CREATE, :URI_NAME, :ALWAYS, :DETERMINISTIC, :DIRECT_ONLY, :OK, :BUSY,
          :LOCKED, :DONE, :EMPTY

        # Rows of a statement that stays open.
        Cursor = Struct.new(:driver, :handle) do
          def fetch(count) = driver.fetch(self, count)

          def columns = handle.columns

          def close = driver.release(handle)
        end
        private_constant :Cursor

        class << self
          # @param url [String, URI] see {Location}
          # @param options [Hash{Symbol => Object}] as given to {DB.connect}
          # @return [Hash{Symbol => Object}] what both stand for, checked
          # @raise [ArgumentError]
          def settings(url, options)
            given = Options.checked(Location.options(url).merge(options), OptionChecks::ALL)
            raise ArgumentError, "the address of a database has a path: sqlite:///path" unless given[:database]

            OptionChecks::DEFAULTS.merge(given, database: Location.absolute(given[:database]))
          end

          # @param options see {.settings}
          # @return [Driver]
          def connect(**options) = new(options)
        end

        # @api private
        def initialize(options)
          Library.load
          @options = options
          @commands = {}
          open
          complete = true
        ensure
          @native&.close unless complete
        end

        # Whether values come as SQLite stores them, whatever their columns' declared types.
        #
        # @param stored [Boolean]
        def stored_values=(stored)
          @native.stored_values = stored
        end

        def database_type = :sqlite

        def description = "SQLite at #{@options[:database]}"

        def version = Database.library

        # ---- statements

        def kind(sql)
          Database.plain?(sql) ? :plain : @native.kind(sql)
        rescue ArgumentError, EncodingError
          :plain # the same error is raised when it is to run
        end

        # @return [Database]
        attr_reader :native

        def placeholders(sql) = Statements.placeholders(sql)

        def identifier_quote = '"'

        def query(sql, arguments)
          handle, result = run_text(sql, arguments)
          release(handle) if handle
          result || run_several(sql, arguments)
        end

        def query_prepared(sql, arguments)
          both = run_text(sql, arguments)
          return both if both.last

          release(both.first)
          [nil, run_several(sql, arguments)]
        end

        def prepare(sql)
          handle = prepared(sql, 0)
          return handle if handle.is_a?(ServerError) || !handle.tail

          release(handle)
          raise ArgumentError, "there is more than one statement to prepare: #{sql}"
        end

        def execute(handle, arguments)
          before(handle) if @query_only || !@waiting.empty?
          @native.run(handle, arguments)
        ensure
          let_others_in unless @waiting.empty?
          writer_ended if @writes && !in_transaction?
        end

        # The few texts of transactions stay prepared. Those of this driver leave nothing to the next user.
        def command(sql)
          handle = @commands[sql] ||= begin
            touched = @native.touched?
            handle = prepared(sql, 0)
            @native.touched = touched
            return handle if handle.is_a?(ServerError)

            handle
          end
          execute(handle, EMPTY)
        end

        def ping = command("SELECT 1")

        # Statements are closed at once: a close sends nothing.
        def release(handle) = @native.release(handle)

        def owns?(handle) = @native.owns?(handle)

        def closes = 0

        def flush_closes = nil

        def final?(_error) = false

        def locate(error)
          offset = error.instance_variable_get(:@offset)
          text = error.sql.encode(Encoding::UTF_8).b if offset
          return unless text && offset <= text.bytesize

          before = text.byteslice(0, offset).force_encoding(Encoding::UTF_8)
          error.instance_variable_set(:@position, before.length + 1) if before.valid_encoding?
        rescue ArgumentError, EncodingError
          nil
        end

        def invalidates?(kind) = kind == :other

        def close_silently = close

        def open_cursor(sql, arguments)
          handle = prepare(sql)
          return handle if handle.is_a?(ServerError)

          @native.open_rows(handle, arguments)
          opened = Cursor.new(self, handle)
        ensure
          release(handle) if handle && !handle.is_a?(ServerError) && !opened
        end

        # @api private for a cursor
        def fetch(cursor, count)
          before(cursor.handle) if @query_only || !@waiting.empty?
          @native.fetch_rows(cursor.handle, count)
        ensure
          let_others_in unless @waiting.empty?
          writer_ended if @writes && !in_transaction?
        end

        def tables(schema, name)
          sql = "select name from pragma_table_list where schema = coalesce(?, 'main') " \
            "and name not like 'sqlite@_%' escape '@'"
          name ? query("#{sql} and name = ?", [schema, name]) : query("#{sql} order by 1", [schema])
        end

        # ---- functions, copies

        def define_function(kind, name, arity, callable, deterministic: false, direct_only: false)
          @native.touched = true
          flags = (deterministic ? DETERMINISTIC : 0) | (direct_only ? DIRECT_ONLY : 0)
          @native.create([name, arity, flags, callable, kind])
        end

        def backup(path, pages)
          if File.exist?(path) && File.identical?(path, database)
            raise ArgumentError, "a database cannot be copied into itself: #{path}"
          end
          if @native.writing?
            raise TransactionError, "a database cannot be copied within a transaction that writes: end it first"
          end

          copy = Database.new
          copy.error_map = ErrorMap.new(path)
          error = copy.open(path, READ_WRITE | CREATE | ALWAYS)
          return error if error

          snapshot = read_lock
          return snapshot if snapshot.is_a?(ServerError)

          source_is_locked = false
          tries = 0
          waiter = Waiter.new(WaitQueue.new, @waiter.seconds)
          error = @native.copy_to(copy, pages) do |done, all, code|
            # SQLite calls its busy handler again only if the handler said to try again.
            source_is_locked = code == BUSY && (source_is_locked || @waiting.key?(@waiter))
            case code
            when OK, DONE
              tries = 0
              yield(done, all) || true
            when BUSY, LOCKED then waiter.call((tries += 1) - 1)
            end
          ensure
            waiter.leave if code == OK
            let_others_in unless @waiting.empty? # the block may take its time
          end
          (error && source_is_locked) ? @error_map.error(BUSY, "database is locked", -1) : error
        ensure
          let_others_in unless @waiting.empty?
          snapshot.close if snapshot.is_a?(Cursor)
          copy&.close
        end

        # ---- transactions

        def begin_transaction(isolation:, read_only:, deferrable:)
          raise ArgumentError, "deferrable: transactions do not exist in SQLite" if deferrable

          isolation_level(isolation) if isolation # all are serializable
          reads = read_only || @native.read_only?
          result = begin_as(reads ? :deferred : @options[:transaction])
          return [result] unless read_only && in_transaction?

          attend(query_only: true)
          [result, set_query_only(true)]
        end

        def in_transaction? = @native.in_transaction?

        # SQLite may have rolled the transaction back.
        def effect_of(error)
          writer_ended if @writes && !in_transaction?
          super
        end

        def commit = with_end { super }

        def rollback = with_end { super }

        # ---- the session

        # A statement whose rows nobody fetches any more would hold up checkpoints for ever.
        def session_changed? = @native.touched? || @native.reading?

        def settle_session = @native.touched = false

        # A new connection is as quick, and forgets everything. A database in memory would be gone: it stays as it is.
        def reset_session
          settle_session if memory?
          memory?
        end

        # ---- life

        def healthy? = at_rest?

        def at_rest? = !closed? && !@native.busy?

        def closed? = @native.closed?

        def forked? = @native.forked?

        def close
          @waiter&.wake
        ensure
          ended = @writes || @native.in_transaction?
          @native.close
          writer_ended if ended && !@native.busy?
        end

        # SQLite has stopped, nothing runs on, and nothing is owed: the connection goes on.
        def abandon(_lost)
          writer_ended if @writes && !in_transaction?
        end

        private

        # @return [String] the path of the database; ":memory:" for one in memory
        def database = @options[:database]

        def memory? = database == ":memory:"

        def open
          @native = Database.new
          @native.error_map = @error_map = ErrorMap.new(database)
          check(@native.open(*file))
          @native.timeout = @options[:timeout]
          @native.local = @options[:time_zone] == :local
          @queue = WaitQueue.of(@native.path)
          @waiting = @queue.waiting # the same Hash for as long as the queue exists
          @waiter = Waiter.new(@queue, @options[:busy_timeout])
          @error_map.attach(@queue, @waiter)
          @native.wait_for_locks_by(@waiter, @waiting)
          Heddle.deadline(@options[:connect_timeout]) { set_up }
        end

        # The name and the flags for SQLite.
        def file
          flags = ALWAYS
          flags |= if @options[:read_only] || @options[:immutable]
            READ_ONLY
          else
            @options[:create] ? READ_WRITE | CREATE : READ_WRITE
          end
          return [database, flags] unless @options[:immutable]

          ["file:#{database.gsub(/[?#%]/) { |mark| format("%%%02X", mark.ord) }}?immutable=1", flags | URI_NAME]
        end

        def set_up
          @options[:extensions].each do |path|
            refused = loaded(path)
            raise LoginFailed, "#{description} cannot load the extension #{path}: #{refused}" if refused
          end
          pragmas.each do |name, value|
            check(set("PRAGMA #{name} = #{value}"))
          end
          settle_session
        end

        # Stands behind nobody: a new connection can read beside a long transaction.
        def set(pragma)
          handle, result = @native.run_new(pragma, EMPTY)
          release(handle) if handle
          result || run_several(pragma, EMPTY)
        ensure
          let_others_in unless @waiting.empty?
        end

        # The journal's mode is the file's own, and cannot be set where the file is not to be written.
        def pragmas
          all = {"foreign_keys" => @options[:foreign_keys] ? 1 : 0, "synchronous" => @options[:synchronous]}
          all["journal_mode"] = @options[:journal_mode] unless @native.read_only? || memory?
          all.merge!(@options[:pragmas])
        end

        def check(result)
          return unless result.is_a?(ServerError)

          hint = ". #{result.hint[0].upcase}#{result.hint[1..]}" if result.hint
          raise LoginFailed, "cannot open #{description}: #{result.message}#{hint}", cause: result
        end

        # Prepares and runs a statement that was not prepared before.
        def run_text(sql, arguments)
          allow_writes if @query_only && !in_transaction?
          return run_in_turn(sql, arguments) unless @waiting.empty? || in_transaction?

          @native.run_new(sql, arguments)
        ensure
          let_others_in unless @waiting.empty?
          writer_ended if @writes && !in_transaction?
        end

        # The same while others wait for the lock. Only SQLite knows whether this statement will want the lock, too: it
        # says so of a statement that is prepared.
        def run_in_turn(sql, arguments)
          handle = prepared(sql, 0)
          return [nil, handle] if handle.is_a?(ServerError)

          unless handle.tail
            @waiter.queue_up unless handle.reads?
            result = @native.run(handle, arguments)
          end
          complete = true
          [(handle unless handle.empty?), result]
        ensure
          release(handle) if !complete && handle.is_a?(Prepared)
        end

        # Reading the schema may wait for the lock, too.
        def prepared(sql, offset)
          @native.prepare(sql, offset)
        ensure
          let_others_in unless @waiting.empty?
        end

        # An extension may run statements when it is loaded.
        def loaded(path)
          @native.load_extension(path)
        ensure
          let_others_in unless @waiting.empty?
        end

        # A copy starts again whenever another connection has written. With a write-ahead log, a reader keeps the state
        # at its start, and stops no writer.
        #
        # @return [Cursor, ServerError, nil]
        def read_lock
          mode = command("PRAGMA journal_mode")
          return mode if mode.is_a?(ServerError)
          return unless mode.rows == [["wal"]]

          cursor = open_cursor("SELECT 1 FROM sqlite_schema", EMPTY)
          return cursor if cursor.is_a?(ServerError)

          rows = fetch(cursor, 1)
          return rows if rows.is_a?(ServerError)

          locked = cursor
        ensure
          cursor.close if cursor.is_a?(Cursor) && !locked
        end

        # Others may wait for the lock, and the last transaction may have allowed only reads.
        def before(handle)
          allow_writes if @query_only && !in_transaction?
          @waiter.queue_up unless @waiting.empty? || in_transaction? || handle.reads?
        end

        # Lets the next waiter take the lock, and takes a statement that has waited out of the queue. Call this first in
        # each ensure, behind a condition that calls no method of Ruby: then no exception can arrive before it runs. For
        # the same reason it leaves the queue before it asks for the transaction; {Waiter#let_others_in} is told of it.
        def let_others_in
          @waiter.leave
          @queue.wake unless in_transaction?
        end

        # Several statements run one after another; they have no arguments. The result is the last one's.
        def run_several(sql, arguments)
          raise ArgumentError, "several statements in one text have no arguments: #{sql}" unless arguments.empty?
          inside = in_transaction?
          refuse_end(sql) if inside && kind(sql) == :commit
          text = sql.encode(Encoding::UTF_8).freeze
          offset = 0
          result = nil
          while offset
            handle = prepared(text, offset)
            return shifted(handle, offset) if handle.is_a?(ServerError)

            refuse_end(sql) if inside && handle.ends_transaction?
            result = execute(handle, EMPTY)
            following = handle.tail
            release(handle)
            return shifted(result, offset) if result.is_a?(ServerError)

            offset = following
          end
          result
        end

        def refuse_end(sql)
          raise TransactionError, "one of these statements would end the transaction they are in: #{sql}"
        end

        # The position of an error in the whole text.
        def shifted(error, offset)
          at = error.instance_variable_get(:@offset)
          error.instance_variable_set(:@offset, at + offset) if at
          error
        end

        def begin_as(mode)
          result = command("BEGIN #{mode.name.upcase}")
          writer_began if mode != :deferred && in_transaction?
          result
        end

        # Another thread may close the connection meanwhile.
        def writer_began
          attend(writes: true)
          @queue.writer = "task or thread #{Connection.holder.inspect}"
        ensure
          writer_ended unless in_transaction?
        end

        def writer_ended
          attend(writes: false)
          @queue.writer = nil
          @queue.wake
        end

        # What this driver has to do before and after statements: it allows writes again, and tells of the end of a
        # writing transaction.
        def attend(query_only: @query_only, writes: @writes)
          @query_only = query_only
          @writes = writes
          @native.attended = @query_only || @writes
        end

        def with_end
          yield
        ensure
          allow_writes if @query_only && !in_transaction? && !closed?
        end

        def allow_writes
          attend(query_only: false)
          set_query_only(false)
        end

        def set_query_only(on) = command(on ? "PRAGMA query_only = 1" : "PRAGMA query_only = 0")
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # A connection to PostgreSQL, as {DB::Driver} describes it.
      #
      # @api private
      class Driver
        include WireDriver

        # Errors after which a statement is prepared again: a pooler closed it, its name is taken, or its columns have
        # changed, which PostgreSQL does not support.
        STALE = %w[26000 42P05 0A000].freeze
        # The server ends the session behind these: a shutdown, a crash, another database with its name, an idle limit.
        FINAL = %w[57P01 57P02 57P03 57P04 57P05 08P01].freeze
        # What the server says of statements in a transaction that has failed.
        REFUSED = "25P02"
        EMPTY = [].freeze
        # feature_not_supported
        LACKING = "0A000"
        # Another client of the same session has a statement of this name.
        TAKEN = "42P05"
        CANCELED = "57014"
        # Milliseconds of the session itself; 0 for none.
        OWN_TIMEOUT = "select (extract(epoch from pg_catalog.current_setting('statement_timeout')::interval) " \
          "* 1000)::pg_catalog.int4"
        # Of the rows of a COPY.
        FORMS = %i[text csv binary].freeze
        private_constant :STALE, :FINAL, :REFUSED, :EMPTY, :LACKING, :TAKEN, :CANCELED, :OWN_TIMEOUT, :FORMS

        class << self
          # @param url [String, URI] see {Conninfo}
          # @param options [Hash{Symbol => Object}] as given to {DB.connect}
          # @return [Hash{Symbol => Object}] what both stand for, checked
          # @raise [ArgumentError]
          def settings(url, options) = Settings.of(url, options)

          # Says that statements of several tasks may be in flight, see {Pool#query}.
          def multiplexes? = true

          # @param options see {.settings}
          # @return [Driver]
          def connect(**options) = new(options)
        end

        # @api private
        def initialize(options)
          @options = options
          @portals = 0
          @held_cursors = {} # names of those that the server keeps beyond their transaction
          @calls = Calls.new
          Connecting.new(options).perform do |protocol, login, server|
            @protocol = protocol
            @stream = protocol.stream
            @login = login
            @server = server
            begin_server_deadlines if options[:server_deadlines]
          end
          @protocol.timeout = options[:timeout]
          # A pooler stops no query of a client that has gone: its socket stays open until the cancel is sent, though
          # the stream closes its own descriptor at an interruption.
          @held = @stream.to_io.dup if @login.pooled?
          # There a session of the server has statements and cursors of other clients, too.
          @tag = ("_#{SecureRandom.hex(7)}" if @login.pooled?)
          @protocol.tag = @tag if @tag
        end

        def version = @protocol.settings.fetch("server_version", "")

        # @return [Integer, nil] the server's number for this connection
        def process_id = @login.process_id

        def database_type = :postgresql

        def description = "PostgreSQL at #{@server}"

        # ---- statements

        def kind(sql)
          kind = @protocol.kind_of(sql)
          refuse_copy(kind) if kind == :copy_in || kind == :copy_out
          record_effects(sql, kind) unless kind == :plain
          kind
        end

        def placeholders(sql)
          @protocol.placeholders(sql) || raise(ArgumentError, "this statement has parameters such as $1, or a text " \
            "without its end: write all its parameters as :name, or as ? for values and lists: #{sql}")
        end

        def numbered_placeholders? = true

        def identifier_quote = '"'

        # Several statements go by a simple Query: one transaction, whose results follow one another.
        def query(sql, arguments)
          several = arguments.empty? && sql.include?(";") && @protocol.statements(sql) > 1
          return @protocol.run_new(sql, arguments) unless several

          SimpleResults.complete(@protocol, @protocol.run_text(sql))
        end

        def query_prepared(sql, arguments)
          both = @protocol.run_named(sql, arguments)
          skip_taken_names?(both.last) ? @protocol.run_named(sql, arguments) : both
        end

        def prepare(sql)
          result = @protocol.prepare(sql)
          skip_taken_names?(result) ? @protocol.prepare(sql) : result
        end

        def ping = @protocol.run_text("")

        # What a statement runs may fail with the same states, behind a commit of its own.
        def stale?(error) = error.stage == :refused && STALE.include?(error.sql_state)

        def final?(error)
          severity = error.instance_variable_get(:@severity) # since 9.6
          severity ? %w[FATAL PANIC].include?(severity) : FINAL.include?(error.sql_state)
        end

        # See Protocol#textual=.
        #
        # @param textual [Boolean]
        def textual=(textual)
          @protocol.textual = textual
        end

        # @return [Boolean] whether a backslash is special in strings of SQL that have no E in front
        def backslash_escapes? = @protocol.settings["standard_conforming_strings"] == "off"

        def locate(error)
          return if @protocol.textual?
          return unless error.position && error.sql.include?("?")

          error.shift(error.position - @protocol.position(error.sql.encode(Encoding::UTF_8), error.position))
        rescue EncodingError
          nil
        end

        def invalidates?(kind) = kind == :other

        def close_silently
          super
          @held&.close
        end

        # Fetches from a portal (in a transaction), from a cursor WITH HOLD (outside of one), or from rows that were
        # already read (of a statement that is not a SELECT).
        Cursor = Struct.new(:driver, :name, :columns, :rows, :more, :held) do
          def fetch(count)
            return rows.shift(count) if rows && !rows.empty?
            return [] unless more

            driver.fetch(self, count)
          end

          def close = driver.close_cursor(self)
        end
        private_constant :Cursor

        def open_cursor(sql, arguments)
          return open_held(sql, arguments) unless in_transaction?

          result = @protocol.open_portal(name = next_name, sql, arguments, 1)
          if result.is_a?(ServerError)
            return result unless result.sql_state == LACKING

            # Servers that only imitate PostgreSQL's protocol refuse a portal, too.
            return result.suggest("if the server keeps no open portals, use query, which returns all rows at once")
          end

          Cursor.new(self, name, result.instance_variable_get(:@description), result.rows.dup, @protocol.suspended?,
            false)
        end

        # @api private for a cursor
        def fetch(cursor, count)
          result = if cursor.held
            @protocol.run_new("FETCH #{Integer(count)} FROM #{cursor.name}", [])
          else
            @protocol.fetch(cursor.name, cursor.columns, count)
          end
          return result if result.is_a?(ServerError)

          cursor.columns ||= result.instance_variable_get(:@description)
          cursor.more = cursor.held ? result.size == count : @protocol.suspended?
          result.rows
        end

        # The server keeps a cursor beyond its last row.
        #
        # @api private for a cursor
        def close_cursor(cursor)
          return if closed? || @protocol.owed > 0 || cursor.name.nil?

          @protocol.close_portal(cursor.name)
          @held_cursors.delete(cursor.name)
          cursor.name = nil
          cursor.more = false
        end

        # Each statement runs alone, with its own Sync. After an error in a transaction the server refuses the rest.
        def batch(requests, _plain)
          results = []
          unsent = []
          failure = nil
          receive = lambda do
            while results.size < unsent.size
              results << batch_result(unsent[results.size], requests[results.size].first, failure)
              failure ||= results.last if results.last.is_a?(ServerError) && @protocol.failed?
            end
          end
          requests.each do |sql, arguments|
            unsent << send_in_batch(sql, arguments, receive)
          end
          receive.call
          results.each_with_index { |result, index| yield result, index }
          results
        end

        # The server cannot say what a statement wants that needs what one before it makes; in a transaction its refusal
        # ends all.
        def atomic_batch(requests)
          settled = requests.each_with_index.map do |(sql, arguments), index|
            values = Parameters.settled(@protocol, sql, arguments, nil)
            next [sql, values] unless values.is_a?(ServerError)
            return [Array.new(index), values] if @protocol.failed?

            [sql, Parameters.untyped(arguments)]
          end
          @protocol.run_atomic(settled)
        end

        # ---- COPY, notifications, notices

        def copy_in(sql)
          started_copy(sql, :copy_in) { |columns, options| CopyIn.of(@protocol, columns, options) }
        end

        def copy_out(sql, raw:)
          started_copy(sql, :copy_out, raw) do |columns, options|
            CopyOut.of(@protocol, columns, options.merge!(raw: raw))
          end
        end

        def failed? = @protocol.failed?

        def queued_notification
          (kept = @protocol.notification) && Notification.new(*kept)
        end

        def listen_sql(channel) = "LISTEN #{quote_identifier(channel)}"

        def unlisten_sql(channel) = "UNLISTEN #{channel ? quote_identifier(channel) : "*"}"

        def notify_sql = "select pg_notify(?, ?)"

        # Waits for readability, not for time.
        def next_notification(seconds)
          till = seconds && Clock.now + seconds
          loop do
            arrived = @protocol.consume_input
            kept = queued_notification
            return kept if kept
            return read_error if arrived == :message || arrived == :gone

            left = till && [till - Clock.now, 0].max
            return if left == 0
            return unless @protocol.wait_for_more(left)
          end
        end

        def notices=(kept)
          @protocol.noticing = kept
        end

        def take_notices = @protocol.notices&.map { |fields| Notice.of(fields) } || EMPTY

        # ---- transactions

        def begin_transaction(isolation:, read_only:, deferrable:)
          modes = []
          modes << "ISOLATION LEVEL #{isolation_level(isolation)}" if isolation
          modes << "READ ONLY" if read_only
          modes << "DEFERRABLE" if deferrable
          [command("BEGIN #{modes.join(", ")}")]
        end

        def effect_of(_error)
          return :ended unless in_transaction?

          @protocol.failed? ? :doomed : :none
        end

        # ---- the session

        def session_changed? = @touched || @called || !@held_cursors.empty?

        def session_unknown? = !@calls.unknown.empty?

        def check_session
          @called = true if !session_changed? && @calls.change_session?(@protocol)
          @calls.unknown.clear
        end

        def settle_session
          @touched = @called = false
          @calls.unknown.clear
        end

        def reset_session
          return false if command("DISCARD ALL").is_a?(ServerError)

          @protocol.forget_statements
          @calls.clear if @touched # a statement may have made other functions
          @protocol.notifications # of what the one before listened to
          @held_cursors.clear
          @login.speak_of_intervals # which the startup message cannot set
          @touched = @called = false
          !(@options[:server_deadlines] && send_deadlines)
        end

        def multiplexing_refusal = nil

        # ---- life

        # A notification that waits to be read does not make a connection unfit.
        def healthy?
          return false unless @protocol.owed.zero? && !closed?

          @stream.healthy? || @protocol.consume_input == :nothing
        rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
          false
        end

        def close
          super
        ensure
          @held&.close
        end

        def abandon(lost)
          return super if @abandoned || forked? || !@protocol.unfinished?

          if @protocol.statement_timed_out?
            super unless read_rest
          elsif cancels? && !@login.pooled?
            stop_and_keep_open
          else
            super
          end
        ensure
          @held&.close if closed?
        end

        # ---- tables

        def tables(schema, name)
          sql = "select distinct table_name::text from information_schema.tables where (table_schema::text = ?::text " \
            "or (?::text is null and table_schema::name = any(current_schemas(false))))"
          return @protocol.run_own("#{sql} and table_name::text = ?::text", [schema, schema, name]) if name

          @protocol.run_own("#{sql} order by 1", [schema, schema])
        end

        private

        def goodbye = "X\0\0\0\x04" # Terminate

        # The session's own limit is asked for here alone: once deadlines are sent, the server says the caller's.
        def begin_server_deadlines
          own = @protocol.run_own(OWN_TIMEOUT, [])
          refused = own.is_a?(ServerError) ? own : send_deadlines(Integer(own.rows.dig(0, 0)))
          return unless refused

          raise LoginFailed, "#{description} does not say its statement_timeout, which server_deadlines: needs: " \
            "#{refused.message}", cause: refused
        end

        # Has the server get the caller's time with each statement.
        #
        # @return [ServerError, nil] why it cannot
        def send_deadlines(own = @own_timeout)
          # A pooler may run each transaction in another session.
          setter = @protocol.prepare(Protocol::STATEMENT_TIMEOUT) unless @login.pooled?
          return setter if setter.is_a?(ServerError)

          @protocol.enable_statement_timeout(@own_timeout = own, setter)
          nil
        end

        def stop_query
          Cancel.send(@login) if cancels?
        end

        def cancels? = @options.fetch(:kill_queries, true)

        # A cancel may arrive late, and would then stop the next query. So the connection stays open only if the server
        # confirms that the cancel has stopped this query.
        def stop_and_keep_open
          error = Cancel.send(@login) { Heddle.deadline(LAST_ANSWER) { @protocol.finish_reply } }
          stopped = error && error.sql_state == CANCELED
        ensure
          close_silently unless stopped
        end

        # The server stops the statement by itself, as late as the caller's wait has ended.
        #
        # @return [Boolean] whether it has, so that the connection goes on
        def read_rest
          Cancel.in_own_time do
            Heddle.deadline(LAST_ANSWER) { @protocol.finish_reply }
            true
          end
        end

        # Between two requests the server says nothing else, except that it ends the connection.
        def read_error
          error = @protocol.read_message
          return error if error.is_a?(ServerError)

          @stream.poison
          raise ProtocolError, "#{description} sent a message that nobody had asked for; the connection is closed"
        end

        # What the statement may leave in the session.
        def record_effects(sql, kind)
          # It may have closed the statement that sets the timeout.
          @protocol.enable_statement_timeout(@own_timeout, nil) if kind == :other && @options[:server_deadlines]
          return @touched = true if kind == :session || kind == :other || @protocol.sets_config?(sql)
          return @touched = true if kind == :commit && @protocol.statements(sql) > 1

          @calls.record(@protocol.calls(sql))
        end

        def refuse_copy(kind)
          raise ArgumentError, "a COPY #{(kind == :copy_in) ? "from STDIN" : "to STDOUT"} is run by #{kind}: " \
            "db.#{kind}(sql) { |#{(kind == :copy_in) ? "copy| copy << row" : "row| …"} }"
        end

        def started_copy(sql, kind, raw = false)
          unless @protocol.kind_of(sql) == kind && @protocol.statements(sql) == 1
            raise ArgumentError, "#{kind} takes one COPY … #{(kind == :copy_in) ? "FROM STDIN" : "TO STDOUT"}, " \
              "not: #{sql}"
          end

          record_effects(sql, kind)
          options = CopyOptions.of(@protocol, sql)
          if kind == :copy_out && options[:encoding] && !raw
            raise ArgumentError, "the rows of this COPY are in an encoding of its own: leave the statement's " \
              "encoding out, or take their bytes (raw: true)"
          end

          unless kind == :copy_in || raw || FORMS.include?(options[:format])
            raise ArgumentError, "the rows of this COPY are #{options[:format]}, which are not read here: take their " \
              "bytes (raw: true)"
          end

          described = (describe_copy(sql, kind) if options[:format] == :binary && !raw && !@protocol.textual?)
          return described if described.is_a?(ServerError)

          columns, binary = started = @protocol.start_copy(sql, kind == :copy_in)
          return started if started.is_a?(ServerError)

          options[:format] = (:binary if binary) || ((options[:format] == :csv) ? :csv : :text)
          if described && described.size == columns
            options.update(described: described, converter: BinaryForm.new(@protocol, described))
          end
          yield columns, options
        end

        # The server says only how many columns a COPY has.
        #
        # @return [Columns, nil, ServerError] nil if they cannot be told; an error if the COPY cannot run any more
        def describe_copy(sql, kind)
          table, list = @protocol.copy_target(sql)
          return unless table

          columns = (list == false) ? @protocol.describe(table) : describe_table(table, list)
          if columns.is_a?(ServerError)
            # Outside a transaction the COPY itself is refused, perhaps, with a position in its own text.
            return (@protocol.in_transaction? || final?(columns)) ? columns.shift(Float::INFINITY) : nil
          end

          columns && know_types(columns, kind)
        end

        def describe_table(table, list)
          columns = @protocol.describe(selection(table, list))
          return columns if list || !columns.is_a?(Columns)

          # A COPY that names no columns leaves generated ones out.
          generated = generated_columns(columns)
          return generated if generated.is_a?(ServerError)
          return columns if generated.empty?

          kept = columns.names - generated
          @protocol.describe(selection(table, kept.map { |name| quote_identifier(name) }))
        end

        def selection(table, list)
          return "select * from #{table}" unless list

          "select #{list.map { |name| "heddle.#{name}" }.join(", ")} from #{table} as heddle"
        end

        # Servers have them since 12.
        def generated_columns(columns)
          table = columns.descriptions.dig(0, 2)
          return EMPTY if table.nil? || table == 0 || version.to_i < 12

          result = @protocol.run_own("select attname::pg_catalog.text from pg_catalog.pg_attribute " \
            "where attrelid = ?::pg_catalog.oid and attgenerated <> ''", [table])
          result.is_a?(ServerError) ? result : result.rows.flatten
        end

        # In the middle of a COPY nothing can be looked up.
        def know_types(columns, kind)
          Types.know(@protocol, columns.types)
          if kind == :copy_out && (name = BinaryForm.new(@protocol, columns).unreadable)
            raise ArgumentError, "the column #{name} is of a type that cannot be read from a COPY in the binary form " \
              "(money, a composite type, or one without a known form): cast it in a query (copy (select " \
              "#{name}::text …) to stdout), use the text form, or take the server's bytes (raw: true)"
          end

          columns
        end

        # @param receive [Proc] reads the answers that are owed: the server can be asked for a value's type then
        # @return [nil, Exception] nil if an answer is owed
        def send_in_batch(sql, arguments, receive)
          if Parameters.doubtful?(@protocol, arguments)
            receive.call
            arguments = Parameters.settled(@protocol, sql, arguments, nil)
            return arguments if arguments.is_a?(ServerError)
          end
          @protocol.send_new(sql, arguments)
        rescue ArgumentError, TypeError, EncodingError => error
          error
        end

        # @param unsent [Exception, nil] why the request was not sent; nil if its answer is to be read
        # @param failure [ServerError, nil] the error that failed the transaction
        def batch_result(unsent, sql, failure)
          result = unsent || @protocol.receive
          return (failure && !unsent && @protocol.rolled_back(sql)) || result unless result.is_a?(ServerError)

          (failure && result.sql_state == REFUSED) ? not_run(failure) : result
        end

        def not_run(failure)
          TransactionError.new("this statement was not run: one before it failed the transaction (#{failure.message})")
        end

        # Behind a pooler that was not recognized each client counts its names from 1: the next ones are taken, too.
        #
        # @return [Boolean] whether the statement may be prepared again
        def skip_taken_names?(result)
          return false unless result.is_a?(ServerError) && result.sql_state == TAKEN && result.stage == :refused
          return false if in_transaction?

          @protocol.skip_statement_ids(SecureRandom.random_number(1 << 31))
          true
        end

        def next_name = "heddle_c#{@portals += 1}#{@tag}"

        # Not inside a transaction, where a portal would end with its statement. A SELECT that writes or locks rows, and
        # every SELECT on some servers, cannot have such a cursor. The server runs the SELECT behind the end of DECLARE.
        def open_held(sql, arguments)
          return open_complete(sql, arguments) unless @protocol.select?(sql)

          head = "DECLARE #{name = next_name} NO SCROLL CURSOR WITH HOLD FOR "
          @held_cursors[name] = true # first: an interrupt may come behind the answer
          result = query(head + sql, arguments)
          if result.is_a?(ServerError)
            @held_cursors.delete(name)
            lacking = result.sql_state == LACKING && result.stage != :completed
            return lacking ? open_complete(sql, arguments) : result.shift(head.length)
          end

          Cursor.new(self, name, nil, nil, true, true)
        end

        # All rows at once.
        def open_complete(sql, arguments)
          result = query(sql, arguments)
          return result if result.is_a?(ServerError)

          Cursor.new(self, nil, result.instance_variable_get(:@description), result.rows.dup, false, false)
        end
      end
    end
  end
end

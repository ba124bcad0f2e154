# frozen_string_literal: true

module Heddle
  module DB
    # The contract of {Connection} with a database: all that it knows of one. Each database has a class that includes
    # this module ({WireDriver}, for one whose wire protocol is in C) and is registered for its scheme ({DB.register},
    # {Databases}); test/shared/db tests the same contract for all of them.
    #
    # A driver is one connection to one server. It is in one of these states:
    #
    # - *idle*: no answer is owed, no transaction is open. A pool may hand the connection on.
    # - *in a transaction*: {#in_transaction?}, as the server said last.
    # - *failed*: the transaction is open, and the server will refuse everything but its rollback. Only some databases
    #   have this state; {#effect_of} tells.
    # - *cursor open*: between {#open_cursor} and the cursor's +close+. Other statements may run between two fetches.
    # - *closed*: by {#close}, {#abandon} or {#close_silently}. It stays closed.
    #
    # {Connection} lets only one fiber or thread in at a time. Three methods may come in the middle of another one, from
    # another thread: {#release} (by a finalizer, too), {#closed?} and {#close}.
    #
    # A wait must be one that the scheduler knows (a {Stream}, an IO, a queue), so that other tasks run meanwhile, and a
    # deadline or a cancel can end it. Such an end is an exception, after which {Connection} calls {#abandon}.
    #
    # Refusals of the server are returned, as a {ServerError} or one of its subclasses, with +code+ or +sql_state+. All
    # other errors are raised: TypeError, ArgumentError and EncodingError for a value that cannot be bound, before
    # anything is sent; {ConnectionLost}, {ProtocolError} and DeadlineExceeded when the connection cannot go on.
    # {Connection} then calls {#abandon}, and makes an IOError, a SystemCallError or an error of TLS a
    # {ConnectionLost}.
    #
    # The SQL that a driver gets has the database's own placeholders: ? or, with {#numbered_placeholders?}, ? or $1.
    # Names and lists are resolved before ({Placeholders}). Arguments are what {Connection#query} takes.
    #
    # The close of a statement needs no packet of its own: {#release} notes it, and the driver's next request takes it
    # along. {Connection} decides how many closes may wait, and calls {#flush_closes} for the others. A database that
    # closes statements at once has no closes that wait.
    #
    # A class says: +settings(url, options)+ → the options that a URL and keywords stand for, checked, among them those
    # that every database has ({Options.checked}); +connect(**options)+ → driver. It gets the same options without
    # +statement_cache+, +statement_cache_size+ and +init+, which are {Connection}'s, and raises {LoginFailed},
    # {ConnectTimeout} (after +connect_timeout+ seconds) or {ConnectionLost}, or a SystemCallError, SocketError or
    # OpenSSL error that {Error.mark} has marked. +timeout+ limits each method that talks to the server.
    #
    # @api private
    module Driver
      # The isolation levels of the SQL standard.
      ISOLATION =
        {read_uncommitted: "READ UNCOMMITTED", read_committed: "READ COMMITTED", repeatable_read: "REPEATABLE READ",
         serializable: "SERIALIZABLE"}.freeze
      private_constant :ISOLATION

      # The kinds of statements that are cached, see {#kind}.
      CACHED = %i[plain calling].freeze

      # @return [String] the database and its address, for messages; never a password
      def description = raise(NotImplementedError)

      # @return [String] the version of the server, or of the library in this process
      def version = raise(NotImplementedError)

      # Classifies a statement that is about to be sent, and notes what it may do to the session.
      # @return [Symbol] :plain (reads or writes rows); :calling (the same, but it calls functions that may change the
      #   session, see {#session_unknown?}; these two alone are cached); :session (plain, but
      #   it may change the session); :commit (it would end a transaction, which {Connection} refuses inside one);
      #   :other
      # @raise [ArgumentError, TypeError] for a statement that cannot be sent
      def kind(sql) = raise(NotImplementedError)

      # Runs a statement that is not cached.
      # @return [Result, ServerError]
      def query(sql, arguments) = raise(NotImplementedError)

      # @return [(Object, Result), (Object, ServerError), (nil, Result), (nil, ServerError)] the statement, which
      #   stays prepared, and its result; nil where it could not be prepared
      def query_prepared(sql, arguments) = raise(NotImplementedError)

      # @return [Object, ServerError] the statement: it has +parameters+ (Integer), +parameter_types+ and +columns+,
      #   each an Array of {Column}, an object with such a +to_a+, or nil
      def prepare(sql) = raise(NotImplementedError)

      # @return [Result, ServerError]
      def execute(statement, arguments) = raise(NotImplementedError)

      # Runs a statement without parameters and without preparing it.
      # @return [Result, ServerError]
      def command(sql) = raise(NotImplementedError)

      # @return [Array<(String, Integer, Integer)>] of each placeholder the name (nil for a ?), and its offset and
      #   length in bytes
      # @raise [ArgumentError] when it depends on the server where they are
      def placeholders(sql) = raise(NotImplementedError)

      # @return [String] the character around a name that needs quotes; {#quote_identifier} doubles it inside
      def identifier_quote = raise(NotImplementedError)

      # Looks up the tables and views that this user may see, without temporary ones.
      # @param schema [String, nil] nil: those that a statement finds without the name of their schema
      # @param name [String, nil] only the one with this name
      # @return [Result, ServerError] rows of one value, the name, in their order
      def tables(schema, name) = raise(NotImplementedError)

      # @return [Result, ServerError]
      def ping = raise(NotImplementedError)

      # Notes that a statement is to be closed. Safe at any time, also in a finalizer, on a closed connection, and for
      # a statement of another connection.
      def release(statement) = raise(NotImplementedError)

      # @return [Boolean] whether the server still has this statement under this connection
      def owns?(statement) = raise(NotImplementedError)

      # @return [Integer] statements whose close waits for the next request
      def closes = raise(NotImplementedError)

      # Sends the closes that wait.
      def flush_closes = raise(NotImplementedError)

      # @return [Boolean] whether the server closes the connection behind this error
      def final?(error) = raise(NotImplementedError)

      # @return [Object, ServerError] the cursor: it has <tt>fetch(count)</tt>, which returns at most so many rows
      #   (none at the end and after it) or a ServerError, +columns+ (the result's, known after the first fetch, with
      #   +names+; nil without rows), and +close+, which neither waits nor raises, also on a closed connection
      def open_cursor(sql, arguments) = raise(NotImplementedError)

      # @param isolation [Symbol, nil] see {#isolation_level}
      # @return [Array<Result, ServerError>]
      # @raise [ArgumentError] for an isolation or an option that the database does not have
      def begin_transaction(isolation:, read_only:, deferrable:) = raise(NotImplementedError)

      # @return [Boolean] as the server said last; false for a closed connection
      def in_transaction? = raise(NotImplementedError)

      # @return [Boolean] whether the next user of the connection would find something that this one left
      def session_changed? = raise(NotImplementedError)

      # Puts the session back as the login left it, and closes all prepared statements: {#owns?} is false for them.
      # @return [Boolean] whether that worked
      def reset_session = raise(NotImplementedError)

      # Takes the session as it is now for what every user expects: {#session_changed?} is false.
      def settle_session = raise(NotImplementedError)

      # @return [Symbol] one of {Databases::TYPES}
      def database_type = raise(NotImplementedError)

      # Asked at check-out of a pool: one system call, no wait.
      #
      # @return [Boolean] whether no answer is owed and the server has not closed
      def healthy? = raise(NotImplementedError)

      # Asked at check-in.
      #
      # @return [Boolean] like {#healthy?}, without the system call
      def at_rest? = raise(NotImplementedError)

      # @return [Boolean] whether the connection belongs to the process that this one was forked from
      def forked? = raise(NotImplementedError)

      # @return [Boolean] true for a connection of a parent process, too
      def closed? = raise(NotImplementedError)

      # Ends the connection; in a child of fork without a word to the server. Closing twice is harmless.
      def close = raise(NotImplementedError)

      # Called when an operation did not come to its end. If the server owes no answer, the connection stays open, and
      # {#in_transaction?} and {#failed?} tell the state of its transaction. Otherwise the driver has the server stop
      # the query, if it can. The connection is closed, unless the driver has then read the rest of the answer. Raises
      # no error of its own.
      # @param lost [Boolean, nil] whether the server ended the connection or broke the protocol: nothing runs on
      def abandon(lost) = raise(NotImplementedError)

      # The server has said that it closes the connection.
      def close_silently = raise(NotImplementedError)

      # What every driver has to define; what follows are defaults.
      REQUIRED = public_instance_methods.freeze
      private_constant :REQUIRED

      # @return [Boolean] whether the statement has to be prepared again, and was not begun
      def stale?(_error) = false

      # @return [Boolean] whether closes are sent by themselves when the connection has been idle for a second
      def closes_when_idle? = false

      # Sends several statements before it reads the first answer, but never lets one run outside a transaction that
      # an answer before it has ended. Here: one after another, for a database to which nothing travels.
      # @param requests [Array<(String, Array)>] SQL and arguments
      # @param _plain [Boolean] whether all of them are of the kinds :plain and :session
      # @yieldparam result [Result, ServerError, ArgumentError, TypeError, EncodingError]
      # @yieldparam index [Integer] of the request
      # @yieldreturn [Exception, nil] what the requests that are not sent yet end with, instead of being sent
      # @return [Array<Result, Exception>]
      def batch(requests, _plain)
        stopped = nil
        requests.each_with_index.map do |(sql, arguments), index|
          next stopped if stopped

          result = begin
            query(sql, arguments)
          rescue ArgumentError, TypeError, EncodingError => error
            error
          end
          stopped = yield result, index
          result
        end
      end

      # The effect of an error on the open transaction. Only the driver knows it: after an error some servers end the
      # transaction without saying so, some refuse every later statement, some continue.
      #
      # @param error [ServerError] the answer that has just come
      # @return [Symbol] :none (it continues), :doomed (it can only be rolled back), :ended (the server rolled it back)
      def effect_of(error)
        return :ended unless in_transaction?

        error.retryable? ? :doomed : :none
      end

      # @return [String] without the password, which errors of Ruby would show
      def inspect = "#<#{self.class} #{description}#{" closed" if closed?}>"

      # @return [Boolean] whether the transaction is open and the server refuses everything but its rollback
      def failed? = false

      # @return [Boolean] whether statements of the kind :calling ran since the last {#check_session}
      def session_unknown? = false

      # Finds out, if need be from the server, whether they changed the session: {#session_changed?} tells then.
      def check_session = nil

      # @return [Object, nil] the object in C by which {Connection} runs statements itself, where {#kind} is :plain and
      #   #query or #execute would only call that object; nil: by the methods of this module
      def native = nil

      # Makes the position of an error, which is one in the text that the server got, one in the caller's SQL.
      #
      # @param error [ServerError] with its +sql+
      def locate(error) = nil

      # @return [Boolean] whether the server takes $1 instead of ?
      def numbered_placeholders? = false

      # @param name [String, Symbol]
      # @return [String] the name as SQL has it, in quotes
      # @raise [ArgumentError] for a name that no table or column can have
      def quote_identifier(name)
        name = name.to_s
        if name.empty? || name.include?("\0") || !name.valid_encoding?
          raise ArgumentError, "a name must have a character, no NUL and a valid encoding: got #{name.inspect}"
        end

        mark = identifier_quote
        mark + name.gsub(mark, mark + mark) + mark
      end

      # For a server that bounds the number of prepared statements: its driver calls the block when there is no room for
      # another one. The block closes those that are only kept.
      def when_full(&_make_room) = nil

      # @param kind [Symbol] see {#kind}
      # @return [Boolean] whether a statement of this kind makes the cached ones useless; not asked of :plain
      def invalidates?(kind) = kind != :session

      # @param isolation [Symbol]
      # @return [String] the level as SQL has it, for {#begin_transaction}
      # @raise [ArgumentError] when there is no such level
      def isolation_level(isolation)
        ISOLATION.fetch(isolation) do
          raise ArgumentError, "isolation: must be one of #{ISOLATION.keys.map(&:inspect).join(", ")}, " \
            "not #{isolation.inspect}"
        end
      end

      # The ends of transactions, and the savepoints in them.
      #
      # @return [Result, ServerError]
      # @raise [TransactionError] the server answered a commit with a rollback
      def commit = command("COMMIT")

      # @return [Result, ServerError]
      def rollback = command("ROLLBACK")

      # @param name [String] an identifier that needs no quotes
      # @return [Result, ServerError]
      def savepoint(name) = command("SAVEPOINT #{name}")

      # @return [Result, ServerError]
      def release_savepoint(name) = command("RELEASE SAVEPOINT #{name}")

      # @return [Result, ServerError]
      def rollback_to_savepoint(name) = command("ROLLBACK TO SAVEPOINT #{name}")

      # What some databases can do: not included, but defined alike by the drivers that can. For others {Connection}
      # raises {Unsupported}.
      module Optional
        # Sends several statements at once, as one transaction of their own.
        # @param requests [Array<(String, Array)>] SQL and arguments; none of the kind :commit
        # @return [(Array<Result>, nil), (Array<Result>, ServerError)] the results; before an error those of the
        #   statements that it has undone, or all of them if the commit failed
        # @raise [ArgumentError, TypeError, EncodingError] nothing was sent
        def atomic_batch(requests) = raise(NotImplementedError)

        # Begins to send rows, see {Copy#copy_in}. Until the end of the COPY the connection owes an answer.
        # @return [Object, ServerError] it has +<<+ and +write+, and <tt>finish(reason)</tt> → Integer or ServerError,
        #   which ends the COPY: for nil completes it, and returns the number of rows; else has all rows discarded for
        #   that reason
        def copy_in(sql) = raise(NotImplementedError)

        # Begins to receive rows, see {Copy#copy_out}.
        # @return [Object, ServerError] it has +rows+ → Array, nil at the end, and +result+ → Integer (the number of
        #   rows) or ServerError
        def copy_out(sql, raw:) = raise(NotImplementedError)

        # Where statements of several tasks are in flight (the class has +multiplexes?+ then, see {Pool#query}), as the
        # next two.
        # @return [String, nil] why this server cannot have them
        def multiplexing_refusal = raise(NotImplementedError)

        # @return [Boolean] whether the server owes answers that nobody waits for any more
        def replies_to_drop? = raise(NotImplementedError)

        # Reads such answers, if they come soon; else closes the connection, and has the server stop what it does for
        # it.
        # @return [Boolean] whether none is left
        def drop_replies = raise(NotImplementedError)

        # Waits for a notification, see {Listening}. A driver with this method has the next four, too.
        # @param seconds [Numeric, nil] 0: takes what has come
        # @return [Object, nil, ServerError] nil when the time is over
        def next_notification(seconds) = raise(NotImplementedError)

        # @return [Object, nil] the oldest that came during queries
        def queued_notification = raise(NotImplementedError)

        # @return [String] a statement
        def listen_sql(channel) = raise(NotImplementedError)

        # @param channel [String, nil] nil: all
        # @return [String] a statement
        def unlisten_sql(channel) = raise(NotImplementedError)

        # @return [String] a statement with two parameters, the channel and the text
        def notify_sql = raise(NotImplementedError)

        # Whether messages other than errors are kept, see {Notices}. Goes with {#take_notices}.
        def notices=(kept)
          raise(NotImplementedError)
        end

        # @return [Array] those since the last call
        def take_notices = raise(NotImplementedError)

        # Defines a function for SQL, see {Functions}.
        # @param kind [Symbol] :function, :aggregate or :collation
        # @param arity [Integer] -1 for any
        # @param callable [#call, #new]
        # @return [nil, ServerError]
        def define_function(kind, name, arity, callable, deterministic: false, direct_only: false)
          raise(NotImplementedError)
        end

        # Copies the database, see {Backup}.
        # @yieldparam done [Integer] pages
        # @yieldparam all [Integer] pages
        # @return [nil, ServerError]
        def backup(path, pages) = raise(NotImplementedError)
      end
      private_constant :Optional
    end
  end
end

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

      # The kinds of statements that are kept prepared, see {#kind}.
      KEPT = %i[plain calling].freeze

      # @!method description
      #   @return [String] the database and its address, for messages; never a password
      # @!method kind(sql)
      #   Classifies a statement that is about to be sent, and notes what it may do to the session.
      #   @return [Symbol] :plain (reads or writes rows); :calling (the same, but it calls functions that may change the
      #     session, see {#session_unknown?}; these two alone are kept prepared); :session (plain, but
      #     it may change the session); :commit (it would end a transaction, which {Connection} refuses inside one);
      #     :other
      #   @raise [ArgumentError, TypeError] for a statement that cannot be sent
      # @!method query(sql, arguments)
      #   Runs a statement that is not kept.
      #   @return [Result, ServerError]
      # @!method query_keeping(sql, arguments)
      #   @return [(Object, Result), (Object, ServerError), (nil, Result), (nil, ServerError)] the statement, which
      #     stays prepared, and its result; nil where it could not be prepared
      # @!method prepare(sql)
      #   @return [Object, ServerError] the statement: it has +parameters+ (Integer), +parameter_types+ and +columns+,
      #     each an Array of {Column}, an object with such a +to_a+, or nil
      # @!method execute(statement, arguments)
      #   @return [Result, ServerError]
      # @!method command(sql)
      #   Runs a statement without parameters and without preparing it.
      #   @return [Result, ServerError]
      # @!method placeholders(sql)
      #   @return [Array<(String, Integer, Integer)>] of each placeholder the name (nil for a ?), and its offset and
      #     length in bytes
      #   @raise [ArgumentError] when it depends on the server where they are
      # @!method identifier_quote
      #   @return [String] the character around a name that needs quotes; {#quote_identifier} doubles it inside
      # @!method tables(schema, name)
      #   Looks up the tables and views that this user may see, without temporary ones.
      #   @param schema [String, nil] nil: those that a statement finds without the name of their schema
      #   @param name [String, nil] only the one with this name
      #   @return [Result, ServerError] rows of one value, the name, in their order
      # @!method ping
      #   @return [Result, ServerError]
      # @!method release(statement)
      #   Notes that a statement is to be closed. Safe at any time, also in a finalizer, on a closed connection, and for
      #   a statement of another connection.
      # @!method owns?(statement)
      #   @return [Boolean] whether the server still has this statement under this connection
      # @!method closes
      #   @return [Integer] statements whose close waits for the next request
      # @!method flush_closes
      #   Sends the closes that wait.
      # @!method closes_when_idle?
      #   @return [Boolean] whether closes are sent by themselves when the connection has been idle for a second
      # @!method stale?(error)
      #   @return [Boolean] whether the statement has to be prepared again, and was not begun
      # @!method final?(error)
      #   @return [Boolean] whether the server closes the connection behind this error
      # @!method open_cursor(sql, arguments)
      #   @return [Object, ServerError] the cursor: it has <tt>fetch(count)</tt>, which returns at most so many rows
      #     (none at the end and after it) or a ServerError, +columns+ (the result's, known after the first fetch, with
      #     +names+; nil without rows), and +close+, which neither waits nor raises, also on a closed connection
      # @!method batch(requests, plain)
      #   Sends several statements before it reads the first answer, but never lets one run outside a transaction that
      #   an answer before it has ended.
      #   @param requests [Array<(String, Array)>] SQL and arguments
      #   @param plain [Boolean] whether all of them are of the kinds :plain and :session
      #   @yieldparam result [Result, ServerError, ArgumentError, TypeError, EncodingError]
      #   @yieldparam index [Integer] of the request
      #   @yieldreturn [Exception, nil] what the requests that are not sent yet end with, instead of being sent
      #   @return [Array<Result, Exception>]
      # @!method begin_transaction(isolation:, read_only:, deferrable:)
      #   @param isolation [Symbol, nil] see {#isolation_level}
      #   @return [Array<Result, ServerError>]
      #   @raise [ArgumentError] for an isolation or an option that the database does not have
      # @!method in_transaction?
      #   @return [Boolean] as the server said last; false for a closed connection
      # @!method session_changed?
      #   @return [Boolean] whether the next user of the connection would find something that this one left
      # @!method reset_session
      #   Puts the session back as the login left it, and closes all prepared statements: {#owns?} is false for them.
      #   @return [Boolean] whether that worked
      # @!method settle_session
      #   Takes the session as it is now for what every user expects: {#session_changed?} is false.
      # @!method database_type
      #   @return [Symbol] one of {Databases::TYPES}
      # @!method healthy?
      #   @return [Boolean] whether no answer is owed and the server has not closed; one system call, no wait
      # @!method at_rest?
      #   @return [Boolean] like {#healthy?}, without the system call
      # @!method closed?
      #   @return [Boolean] true for a connection of a parent process, too
      # @!method forked?
      #   @return [Boolean] whether the connection belongs to the process that this one was forked from
      # @!method close
      #   Ends the connection; in a child of fork without a word to the server. Closing twice is harmless.
      # @!method abandon(lost)
      #   Called when an operation did not come to its end. If the server owes no answer, the connection stays open, and
      #   {#in_transaction?} and {#failed?} tell the state of its transaction. Otherwise the driver has the server stop
      #   the query, if it can. The connection is closed, unless the driver has then read the rest of the answer. Raises
      #   no error of its own.
      #   @param lost [Boolean, nil] whether the server ended the connection or broke the protocol: nothing runs on
      # @!method close_silently
      #   The server has said that it closes the connection.

      # Not all databases can do what follows; for a driver without these methods {Connection} raises
      # {Unsupported}.

      # @!method atomic_batch(requests)
      #   Sends several statements at once, as one transaction of their own.
      #   @param requests [Array<(String, Array)>] SQL and arguments; none of the kind :commit
      #   @return [(Array<Result>, nil), (Array<Result>, ServerError)] the results; before an error those of the
      #     statements that it has undone, or all of them if the commit failed
      #   @raise [ArgumentError, TypeError, EncodingError] nothing was sent
      # @!method copy_in(sql)
      #   Begins to send rows, see {Copy#copy_in}. Until the end of the COPY the connection owes an answer.
      #   @return [Object, ServerError] it has +<<+ and +write+, and <tt>finish(reason)</tt> → Integer or ServerError,
      #     which ends the COPY: for nil completes it, and returns the number of rows; else has all rows discarded for
      #     that reason
      # @!method copy_out(sql, raw:)
      #   Begins to receive rows, see {Copy#copy_out}.
      #   @return [Object, ServerError] it has +rows+ → Array, nil at the end, and +result+ → Integer (the number of
      #     rows) or ServerError
      # @!method next_notification(seconds)
      #   Waits for a notification, see {Listening}. A driver with this method has the next four, too.
      #   @param seconds [Numeric, nil] 0: takes what has come
      #   @return [Object, nil, ServerError] nil when the time is over
      # @!method kept_notification
      #   @return [Object, nil] the oldest that came during queries
      # @!method listen_sql(channel)
      #   @return [String] a statement
      # @!method unlisten_sql(channel)
      #   @param channel [String, nil] nil: all
      #   @return [String] a statement
      # @!method notify_sql
      #   @return [String] a statement with two parameters, the channel and the text
      # @!method notices=(kept)
      #   Whether messages other than errors are kept, see {Notices}. Goes with {#take_notices}.
      # @!method take_notices
      #   @return [Array] those since the last call

      # @!method define_function(kind, name, arity, callable, **options)
      #   Defines a function for SQL, see {Functions}.
      #   @param kind [Symbol] :function, :aggregate or :collation
      #   @param arity [Integer] -1 for any
      #   @param callable [#call, #new]
      #   @param options [Hash] +deterministic:+ and +direct_only:+
      #   @return [nil, ServerError]
      # @!method backup(path, pages)
      #   Copies the database, see {Backup}.
      #   @yieldparam done [Integer] pages
      #   @yieldparam all [Integer] pages
      #   @return [nil, ServerError]

      # The effect of an error on the open transaction. Only the driver knows it: after an error some servers end the
      # transaction without saying so, some refuse every later statement, some continue.
      #
      # @param error [ServerError] the answer that has just come
      # @return [Symbol] :none (it continues), :doomed (it can only be rolled back), :ended (the server rolled it back)
      def effect_of(error)
        return :ended unless in_transaction?

        error.retryable? ? :doomed : :none
      end

      # @return [Boolean] whether the transaction is open and the server refuses everything but its rollback
      def failed? = false

      # @return [Boolean] whether statements of the kind :calling ran since the last {#look_at_session}
      def session_unknown? = false

      # Finds out, if need be from the server, whether they changed the session: {#session_changed?} tells then.
      def look_at_session = nil

      # @return [Object, nil] the link in C by which {Connection} runs statements itself, where {#kind} is :plain and
      #   #query or #execute would only call that link; nil: by the methods of this module
      def link = nil

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
    end
  end
end

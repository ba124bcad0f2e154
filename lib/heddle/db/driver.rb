# frozen_string_literal: true

module Heddle
  module DB
    # The contract of {Connection} with a database. Each database has a class that includes this module and is
    # registered for its scheme ({DB.register}); test/shared/db tests the same contract.
    #
    # A driver is one connection to one server. It is in one of these states:
    #
    # - *idle*: no answer is owed, no transaction is open. A pool may hand the connection on.
    # - *in a transaction*: {#in_transaction?}, as the server said last.
    # - *failed*: the transaction is open, and the server will refuse everything but its rollback. Only some databases
    #   have this state; {#effect_of} tells.
    # - *cursor open*: between {#open_cursor} and the cursor's +close+. Other statements may run between two fetches.
    # - *closed*: by {#close}, {#abandon} or {#end_without_a_word}. It stays closed.
    #
    # Refusals of the server are returned, as a {ServerError}. All other errors are raised: TypeError, ArgumentError and
    # EncodingError for a value that cannot be bound, before anything is sent; {ConnectionLost}, {ProtocolError} and
    # DeadlineExceeded when the connection cannot go on. {Connection} then calls {#abandon}.
    #
    # The close of a statement needs no packet of its own: {#release} notes it, and the driver's next request takes it
    # along. {Connection} decides how many closes may wait, and calls {#flush_closes} for the others.
    #
    # A class says: +connect(**options)+ → driver; +settings(url, options)+ → the options that a URL and keywords stand
    # for, checked.
    #
    # @api private
    module Driver
      # @!method description
      #   @return [String] the database and its address, for messages; never a password
      # @!method kind(sql)
      #   Classifies a statement that is about to be sent.
      #   @return [Symbol] :plain; :session (plain, but it may change the session); :commit (it would end a
      #     transaction); :other
      # @!method query(sql, arguments)
      #   @return [Result, ServerError]
      # @!method query_keeping(sql, arguments)
      #   @return [(Object, Result), (Object, ServerError), (nil, Result), (nil, ServerError)] the statement, which
      #     stays prepared, and its result; nil where it could not be prepared
      # @!method prepare(sql)
      #   @return [Object, ServerError] the statement: it has +parameters+, +parameter_types+ and +columns+
      # @!method execute(statement, arguments)
      #   @return [Result, ServerError]
      # @!method command(sql)
      #   Runs a statement without parameters and without preparing it.
      #   @return [Result, ServerError]
      # @!method placeholders(sql)
      #   @return [Array<(String, Integer, Integer)>] of each placeholder the name (nil for a ?), and its offset and
      #     length in bytes
      #   @raise [ArgumentError] when it depends on the server where they are
      # @!method ping
      #   @return [Result, ServerError]
      # @!method release(statement)
      #   Notes that a statement is to be closed. Safe at any time, also in a finalizer.
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
      #   @return [Object, ServerError] the cursor: it has <tt>fetch(count)</tt>, which returns rows (none at the end)
      #     or a ServerError, and +close+
      # @!method batch(requests, plain)
      #   Sends several statements before it reads the first answer, but never lets one run outside a transaction that
      #   an answer before it has ended.
      #   @param requests [Array<(String, Array)>] SQL and arguments
      #   @param plain [Boolean] whether all of them are of the kinds :plain and :session
      #   @yieldparam result [Result, ServerError, ArgumentError, TypeError, EncodingError]
      #   @yieldparam index [Integer] of the request
      #   @yieldreturn [Exception, nil] what the requests that are not sent yet end with, instead of being sent
      #   @return [Array<Result, Exception>]
      # @!method atomic_batch(requests)
      #   Sends several statements at once, as one transaction of their own. Only a driver whose database can do so has
      #   this method.
      #   @param requests [Array<(String, Array)>] SQL and arguments; none of the kind :commit
      #   @return [(Array<Result>, nil), (Array<Result>, ServerError)] the results; before an error those of the
      #     statements that it has undone, or all of them if the commit failed
      #   @raise [ArgumentError, TypeError, EncodingError] nothing was sent
      # @!method begin_transaction(isolation:, read_only:, deferrable:)
      #   @param isolation [Symbol, nil]
      #   @return [Array<Result, ServerError>]
      #   @raise [ArgumentError] for an isolation or an option that the database does not have
      # @!method in_transaction?
      #   @return [Boolean] as the server said last
      # @!method session_changed?
      #   @return [Boolean] whether the next user of the connection would find something that this one left
      # @!method reset_session
      #   Puts the session back as the login left it, and closes all prepared statements.
      #   @return [Boolean] whether that worked
      # @!method settle_session
      #   Takes the session as it is now for what every user expects: {#session_changed?} is false.
      # @!method database_type
      #   @return [:mysql, :mariadb, :postgresql]
      # @!method healthy?
      #   @return [Boolean] whether no answer is owed and the server has not closed; one system call, no wait
      # @!method at_rest?
      #   @return [Boolean] like {#healthy?}, without the system call
      # @!method closed?
      #   @return [Boolean]
      # @!method forked?
      #   @return [Boolean] whether the connection belongs to the process that this one was forked from
      # @!method close
      #   Ends the connection; in a child of fork without a word to the server. Closing twice is harmless.
      # @!method abandon(lost)
      #   Called when an operation did not come to its end. Nothing happens if no answer is owed. Otherwise the
      #   connection is closed, and the server is told to stop the query, if it can be told.
      #   @param lost [Boolean] whether the server ended the connection or broke the protocol: nothing runs on
      # @!method end_without_a_word
      #   The server has said that it closes the connection.

      # The effect of an error on the open transaction. Only the driver knows it: after an error some servers end the
      # transaction without saying so, some refuse every later statement, some continue.
      #
      # @param error [ServerError] the answer that has just come
      # @return [Symbol] :none (it continues), :doomed (it can only be rolled back), :ended (the server rolled it back)
      def effect_of(error)
        return :ended unless in_transaction?

        error.retryable? ? :doomed : :none
      end

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
          raise ArgumentError, "a name has characters, without NUL and in a valid encoding, unlike #{name.inspect}"
        end

        mark = identifier_quote
        mark + name.gsub(mark, mark + mark) + mark
      end

      # @return [Boolean] whether the error says that the server has no room for another prepared statement
      def full?(_error) = false

      # @return [String] the server's setting that bounds them, for the message
      def limit_name = raise(NotImplementedError, "#{self.class} has no limit of prepared statements")

      # @param kind [Symbol] see {#kind}
      # @return [Boolean] whether a statement of this kind makes the cached ones useless
      def invalidates?(kind) = kind != :plain && kind != :session

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

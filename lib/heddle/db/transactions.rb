# frozen_string_literal: true

module Heddle
  module DB
    # Transactions of a connection; nested transactions are savepoints. The server's reported state is checked, and a
    # statement that would end a block's transaction is not sent.
    module Transactions
      # Seconds for a rollback after its caller's deadline or cancel.
      ROLLBACK_TIME = 1

      # In a plain thread Thread#raise, Thread#kill and Timeout.timeout may interrupt after each call. While a
      # transaction is rolled back, they may interrupt only waits. Tasks are never interrupted elsewhere, see {Pool}.
      IN_WAITS = {Object => :on_blocking}.freeze

      # Not a Struct: Ruby has an instruction for an object's own ==, but checks for interrupts at the end of Struct#==,
      # and of equal?.
      class Frame
        # @return [String, nil]
        attr_accessor :savepoint

        # @return [Boolean]
        attr_reader :managed

        def initialize(savepoint, managed)
          @savepoint = savepoint
          @managed = managed
        end
      end
      private_constant :ROLLBACK_TIME, :IN_WAITS, :Frame

      # Runs the block in a transaction: commits at the block's end, and rolls back if the block is left in any other
      # way (an error, a deadline, a cancel, throw, break). Inside another transaction it makes a savepoint, and only
      # the block's changes are rolled back.
      #
      # @param isolation [:read_uncommitted, :read_committed, :repeatable_read, :serializable, nil] nil: the server's
      # @param read_only [Boolean]
      # @param deferrable [Boolean] waits for a moment at which a serializable, read-only transaction cannot fail later;
      #   ArgumentError on a database that does not have it
      # @param retry [Integer] how many times the block may run again after a conflict with another transaction
      #   ({ServerError#retryable?}); only for the outermost transaction
      # @yieldparam connection [Connection]
      # @return the block's value
      # @raise [TransactionError, ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def transaction(isolation: nil, read_only: false, deferrable: false, retry: 0)
        unless block_given?
          raise ArgumentError, "a transaction needs a block: db.transaction { … }; or see start_transaction"
        end

        tries = binding.local_variable_get(:retry)
        unless tries.is_a?(Integer) && tries >= 0
          raise ArgumentError, "retry: must be an Integer of at least 0, not #{tries.inspect}"
        end

        tries = 0 unless @frames.empty?
        begin
          managed_transaction(isolation: isolation, read_only: read_only, deferrable: deferrable) { yield self }
        rescue ServerError, TransactionError => error
          # A handler of notices may raise such an error behind the commit.
          raise unless conflict?(error) && tries > 0 && !@committed

          tries -= 1
          retry
        end
      end

      # Begins a transaction that lasts until {#commit} or {#rollback}; in another one, a savepoint.
      #
      # @param isolation [Symbol, nil] see {#transaction}
      # @param read_only [Boolean]
      # @param deferrable [Boolean] see {#transaction}
      # @return [self]
      # @raise [TransactionError, ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {#transaction}
      def start_transaction(isolation: nil, read_only: false, deferrable: false)
        depth = @frames.size
        frame = Frame.new(nil, false)
        begin_frame(frame, isolation: isolation, read_only: read_only, deferrable: deferrable)
        begun = true
        self
      ensure
        undo_all(frame, depth) if !begun && @frames.size > depth
      end

      # Commits the transaction of {#start_transaction}. If the connection is lost meanwhile ({ConnectionLost}), the
      # server may or may not have committed.
      #
      # @raise [TransactionError] without a transaction, or if the server has ended it; see {Connection#query}
      def commit
        end_frame(own_frame("commit"))
      end

      # Rolls back to {#start_transaction}.
      #
      # @raise [TransactionError] without a transaction; see {Connection#query}
      def rollback
        undo_frame(own_frame("roll back"))
      end

      # @return [Boolean] as the server said last
      def in_transaction?
        @driver.in_transaction?
      end

      # @return [Boolean] whether the transaction has failed and can only be rolled back, to the savepoint if it is a
      #   nested one: an error doomed it, or the server ended it
      def needs_rollback?
        !failure.nil?
      end

      # @return [Integer] the number of open, nested transactions
      def transaction_depth
        @frames.size
      end

      private

      def initialize_transactions
        @committed = false
        @in_thread = true
        @first_error = nil
        @pool = nil
      end

      def managed_transaction(**options)
        depth = @frames.size
        frame = Frame.new(nil, true)
        begin_frame(frame, options)
        value = yield
        if @frames.size > depth + 1
          raise TransactionError, "the block of a transaction left #{@frames.size - depth - 1} nested transactions " \
            "open: commit or roll back each transaction of start_transaction"
        end
        end_frame(frame)
        value
      ensure
        # Also after an end that failed, or a beginning after which a listener was interrupted. No method of Ruby is
        # called in front of the mask.
        undo_all(frame, depth) if @frames.size > depth
      end

      # Whether the transaction may succeed when it is run again: a conflict ended it. In a pipeline the
      # error may not have been read: then it is the cause of the error that the next statement raised.
      def conflict?(error)
        error = error.cause if error.is_a?(TransactionError)
        error.is_a?(ServerError) && error.retryable?
      end

      # If that is interrupted, closes the connection, which rolls back everything. A mask holds back no exception of a
      # signal's handler.
      def undo_all(frame, depth)
        return Thread.handle_interrupt(IN_WAITS) { unwind(frame, depth) } if @in_thread

        unwind(frame, depth)
      ensure
        close_undone(depth) if @frames[depth] == frame
      end

      # The frames always say what the server was told: they change within the exchange, before any code of the caller
      # (a listener, a handler of notices) runs and may raise.
      def begin_frame(frame, options)
        if @frames.empty?
          watched("start transaction") { exchange("start transaction") { begin_outermost(frame, options) } }
        else
          if options.values.any?
            raise ArgumentError, "isolation:, read_only: and deferrable: are options of the outermost transaction"
          end

          frame.savepoint = "heddle_#{@frames.size}"
          control("savepoint") do
            checked(@driver.savepoint(frame.savepoint), "savepoint").tap { @frames << frame }
          end
        end
      end

      def begin_outermost(frame, options)
        if in_transaction?
          raise TransactionError, "a statement began a transaction: end that transaction first"
        end

        forget_failure
        @committed = false
        @in_thread = Fiber.current_scheduler.nil?
        self.holder = Connection.holder
        @frames << frame
        @pool&.enter(holder, self)
        results = @driver.begin_transaction(**options)
        results.each { |result| checked(result, "start transaction") }
        raise TransactionError, "the server did not begin a transaction" unless in_transaction?

        results.last
      end

      # The innermost transaction, for commit and rollback.
      def own_frame(what)
        frame = @frames.last
        raise TransactionError, "there is no transaction to #{what}" unless frame
        if frame.managed
          raise TransactionError,
            "the end of its block will #{what} this transaction: leave the block, or raise"
        end

        frame
      end

      def end_frame(frame)
        raise_failure if failure
        if frame.savepoint
          control("release savepoint") do
            checked(@driver.release_savepoint(frame.savepoint), "release savepoint").tap { @frames.pop }
          end
        else
          control("commit") do
            checked(@driver.commit, "commit").tap do
              @committed = true
              drop_frames
            end
          end
        end
      end

      def undo_frame(frame)
        depth = @frames.size - 1
        if !in_transaction? && !closed? # the server has ended it, or never began it
          @frames.pop
          forget_transaction if @frames.empty?
        elsif frame.savepoint
          control("rollback to savepoint", anyway: true) do
            checked(@driver.rollback_to_savepoint(frame.savepoint), "rollback to savepoint").tap do
              @frames.pop
              forget_failure
            end
          end
        else
          control("rollback", anyway: true) { checked(@driver.rollback, "rollback").tap { drop_frames } }
        end
      ensure
        cut(depth) if depth && closed?
      end

      # Rolls back this frame, and those in it. If that fails, closes the connection.
      def unwind(frame, depth)
        return unless @frames[depth] == frame
        return cut(depth) if closed?

        Heddle.shield(ROLLBACK_TIME) do
          undo_frame(@frames.last) while @frames.size > depth
        end
      rescue Error, SystemCallError, DeadlineExceeded
        close_undone(depth)
      end

      def close_undone(depth)
        @driver.close
      ensure
        cut(depth)
      end

      # Drops the transactions from this depth on; the connection is closed. Those around it stay until their blocks
      # end: the pool must not lend these blocks another connection, on which they would run outside the transaction.
      def cut(depth)
        @frames.slice!(depth..)
        @frames.empty? ? forget_transaction : forget_failure
      end

      def drop_frames
        @frames.clear
        forget_transaction
      end

      def forget_transaction
        @pool&.leave(self) if holder
        self.holder = nil
        forget_failure
      end

      def forget_failure
        self.failure = nil
        @first_error = nil
      end

      # Runs the block, which sends a statement that controls the transaction.
      #
      # @param what [String] as listeners see it
      # @param anyway [Boolean] whether it may be sent in a transaction that can only be rolled back
      def control(what, anyway: false)
        watched(what) do
          exchange do
            raise_failure if failure && !anyway
            yield
          end
        end
      end

      def raise_failure
        raise TransactionError,
          "this transaction failed and must be rolled back: #{failure}", cause: @first_error
      end

      # Called from C to refuse a statement: the transaction has failed, or the statement would end it.
      def refuse_statement(sql)
        raise_failure if failure

        raise TransactionError, "this statement would end the transaction it is in: #{sql}"
      end

      # Records an error's effect on the transaction.
      def record_effect(error)
        effect = @driver.effect_of(error)
        return if effect == :none || @frames.empty?

        @first_error = error unless failure
        self.failure = (effect == :doomed) ? error.message : failure || "the server ended it (#{error.message})"
      end

      # Records the state of the transaction after an interrupted statement, if the connection stays open: SQLite rolls
      # the transaction of an interrupted write back, and PostgreSQL lets it fail. Later statements of the block must
      # not run outside the transaction.
      def record_interruption
        return if @frames.empty?
        return self.failure ||= "the interruption of a statement rolled it back" unless in_transaction?

        self.failure ||= "a statement in it was interrupted" if @driver.failed?
      end
    end
    private_constant :Transactions
  end
end

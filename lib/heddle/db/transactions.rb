# frozen_string_literal: true

module Heddle
  module DB
    # Transactions of a connection, one in another by savepoints. What the server says of its state is checked, and nothing that
    # would end a transaction behind its block's back is sent.
    module Transactions
      # Seconds that a rollback may take when its caller's time is over, or it was cancelled.
      ROLLBACK_TIME = 1

      Frame = Struct.new(:savepoint, :managed)
      private_constant :ROLLBACK_TIME, :Frame

      # @api private whose a transaction is: the task or fiber, or the thread
      def self.holder
        Fiber.scheduler ? Task.current || Fiber.current : Thread.current
      end

      # Runs the block in a transaction: commits when it comes to its end, rolls back when it is left in any other way (an
      # error, a deadline, a cancel, throw, break). Inside of another it is a savepoint, and only what the block did is
      # rolled back.
      #
      # @param isolation [:read_uncommitted, :read_committed, :repeatable_read, :serializable, nil] nil: the server's
      # @param read_only [Boolean]
      # @param retry [Integer] how many times the block is run again when the server ended it for others' sake
      #   ({ServerError#retryable?}); only of an outermost transaction
      # @yieldparam connection [Connection]
      # @return the block's value
      # @raise [TransactionError, ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def transaction(isolation: nil, read_only: false, retry: 0)
        raise ArgumentError, "a transaction needs a block: db.transaction { … }; or see start_transaction" unless block_given?

        tries = binding.local_variable_get(:retry)
        raise ArgumentError, "retry: is a number of tries from 0 on, not #{tries.inspect}" unless tries.is_a?(Integer) && tries >= 0

        tries = 0 unless @frames.empty?
        begin
          managed_transaction(isolation, read_only) { yield self }
        rescue ServerError => error
          raise unless error.retryable? && tries > 0

          tries -= 1
          retry
        end
      end

      # Begins a transaction that lasts until {#commit} or {#rollback}; in another one, a savepoint.
      #
      # @param isolation [Symbol, nil] see {#transaction}
      # @param read_only [Boolean]
      # @return [self]
      # @raise [TransactionError, ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {#transaction}
      def start_transaction(isolation: nil, read_only: false)
        begin_frame(isolation, read_only, false)
        self
      end

      # Commits what {#start_transaction} began. When the connection is lost meanwhile ({ConnectionLost}), whether the server
      # has committed is not known.
      #
      # @raise [TransactionError] when there is none, or the server has ended it; see {Connection#query}
      def commit
        end_frame(own_frame("commit"))
      end

      # Takes back what was done since {#start_transaction}.
      #
      # @raise [TransactionError] when there is none; see {Connection#query}
      def rollback
        undo_frame(own_frame("roll back"))
      end

      # @return [Boolean] as the server said last
      def in_transaction?
        @driver.in_transaction?
      end

      # @return [Integer] how many transactions are open, one in another
      def transaction_depth
        @frames.size
      end

      private

      def initialize_transactions
        @frames = []
        @failure = nil
        @holder = nil
        @pool = nil
      end

      def managed_transaction(isolation, read_only)
        depth = @frames.size
        frame = begin_frame(isolation, read_only, true)
        value = yield
        if @frames.size > depth + 1
          raise TransactionError, "the block of a transaction left #{@frames.size - depth - 1} inside of it open: commit or roll back what start_transaction began"
        end
        ended = true
        end_frame(frame)
        value
      ensure
        # An end that failed has left its frame.
        unwind(depth) if frame && (!ended || @frames.size > depth)
      end

      def begin_frame(isolation, read_only, managed)
        if @frames.empty?
          talk do
            raise TransactionError, "a transaction is open already, begun by a statement: end it first" if in_transaction?

            @driver.begin_transaction(isolation, read_only).each { |result| note(result, "start transaction") }
            raise TransactionError, "the server has begun no transaction" unless in_transaction?
          end
          @failure = nil
          @holder = Transactions.holder
          @pool&.enter(@holder, self)
          savepoint = nil
        else
          raise ArgumentError, "isolation: and read_only: are of the outermost transaction" if isolation || read_only

          savepoint = "heddle_#{@frames.size}"
          command("SAVEPOINT #{savepoint}")
        end
        @frames << (frame = Frame.new(savepoint, managed))
        frame
      end

      # The one that commit and rollback are about.
      def own_frame(what)
        frame = @frames.last
        raise TransactionError, "there is no transaction to #{what}" unless frame
        raise TransactionError, "this transaction is that of a block, whose end will #{what} it: leave the block, or raise" if frame.managed

        frame
      end

      def end_frame(frame)
        raise_failure if @failure
        command(frame.savepoint ? "RELEASE SAVEPOINT #{frame.savepoint}" : "COMMIT")
        @frames.pop
        forget_transaction if @frames.empty?
      end

      def undo_frame(frame)
        @frames.pop
        lost = @failure && !in_transaction?
        if frame.savepoint
          command("ROLLBACK TO #{frame.savepoint}", anyway: true) unless lost
          @failure = nil unless lost
        else
          command("ROLLBACK", anyway: true) unless lost
          forget_transaction
        end
      end

      # Back to so many; what cannot be taken back closes the connection, which takes back everything.
      def unwind(depth)
        return if @frames.size <= depth
        return drop_frames if closed?

        Heddle.shield(ROLLBACK_TIME) do
          undo_frame(@frames.last) while @frames.size > depth
        end
      rescue Error, SystemCallError, DeadlineExceeded
        @driver.close
        drop_frames
      end

      def drop_frames
        @frames.clear
        forget_transaction
      end

      def forget_transaction
        @pool&.leave(self) if @holder
        @holder = nil
        @failure = nil
      end

      def command(sql, anyway: false)
        talk do
          raise_failure if @failure && !anyway
          note(@driver.command(sql), sql)
        end
      end

      def raise_failure
        raise TransactionError, "nothing more can be done in this transaction, but to roll it back: #{@failure}"
      end

      # What may be sent now.
      def check_transaction(kind, sql)
        return if @frames.empty?

        raise_failure if @failure
        return unless kind == :commit

        raise TransactionError, "this statement would end the transaction it is in: #{sql}"
      end

      # What the server has made of the transaction.
      def note_state(error = nil)
        return if @frames.empty?

        if error&.retryable?
          @failure = error.message
        elsif !in_transaction?
          @failure ||= error ? "the server has ended it (#{error.message})" : "the server has ended it"
        end
        nil
      end

      def check_transaction_owner
        return if @holder == Transactions.holder

        raise Busy, "another fiber or thread has a transaction open on this connection: give each its own (Heddle::DB::Pool)"
      end
    end
    private_constant :Transactions
  end
end

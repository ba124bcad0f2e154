# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # Runs the calls of one connection, one after another, on its native thread. The caller waits for a pipe: a task
      # in the scheduler, a thread without the GVL.
      #
      # @api private
      class Calls
        # What the driver reports of a call that failed.
        Failure = Struct.new(:state, :code, :messages)

        # Seconds after which a cancel that came between two calls of the driver is repeated.
        CANCEL_AGAIN = 0.25
        private_constant :CANCEL_AGAIN

        # @return [Client]
        attr_reader :client

        # @param encoding [Encoding, nil] of text for the narrow functions; nil for the wide ones
        # @param local [Boolean] whether timestamps are of the process's time zone
        def initialize(encoding, local)
          @ready, writer = IO.pipe
          @client = Client.new(@ready.fileno, writer.fileno, encoding, local)
        ensure
          writer&.close
          @ready&.close unless @client
        end

        # @yieldparam client [Client] one of its methods starts a call
        # @return [Object, Failure] the block's value
        # @raise [ArgumentError] see Client#finish; [DeadlineExceeded] a deadline has passed: the call was not started,
        #   for its outcome could not be waited for
        def run
          Heddle.refuse_late
          started = yield @client
          @ready.wait_readable while @client.busy?
          outcome = @client.finish
          outcome.is_a?(Array) ? Failure.new(*outcome) : started
        end

        # @return [Boolean] whether the driver knows of no reason why the connection should be dead
        def alive?
          @client.check
          @ready.wait_readable while @client.busy?
          @client.finish == true
        end

        # Has the driver end a call whose caller has gone.
        #
        # @param seconds [Numeric] for that
        # @yieldparam failure [Failure]
        # @yieldreturn [Boolean] whether this is how a cancelled call fails
        # @return [Boolean] whether the connection is as sound as before: the call failed by its only cancel. Otherwise
        #   a cancel may still be on its way, and would interrupt the next call
        def stop(seconds)
          return @client.finish && true unless @client.busy?

          stopped_at = Clock.now + seconds
          while @client.busy?
            left = stopped_at - Clock.now
            return false if left <= 0

            cancels = @client.cancel
            @ready.wait_readable([left, CANCEL_AGAIN].min)
          end
          outcome = @client.finish
          outcome.is_a?(Array) && cancels < 2 && yield(Failure.new(*outcome))
        rescue ArgumentError
          true # it was not run
        rescue IOError
          false # it was closed meanwhile
        end

        # Disconnects after the call that runs, if one does, which is cancelled. Does not wait.
        def disconnect
          @client.disconnect
          @ready.close
        end

        private
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  class Limit
    # A caller's permit of a limit: asked for, then granted or refused by a {Coordinator}, and left.
    #
    # @api private
    class Permit
      LOCK_SECONDS = 5
      private_constant :LOCK_SECONDS

      # @return [Limit]
      attr_reader :limit

      # @return [String, nil] its name in Redis, given by the coordinator
      attr_reader :id

      # @return [Coordinator, nil]
      attr_reader :coordinator

      def initialize(limit)
        @limit = limit
        @state = :waiting
        @changed = EventCount.new
      end

      # Called by the coordinator, under its lock.
      def entered(coordinator, id)
        @id = id
        @coordinator = coordinator # last: with it, #leave has something to give back
      end

      def waiting? = @state == :waiting

      def granted
        return unless waiting?

        @state = :granted
        @changed.advance
      end

      def refuse(error)
        return unless waiting?

        @error = error
        @state = :refused
        @changed.advance
      end

      # @raise [Exhausted, Unavailable]
      def wait(timeout)
        deadline = timeout && Clock.now + timeout
        while (seen = @changed.count) && waiting?
          left = deadline && deadline - Clock.now
          raise Exhausted, "no permit of #{@limit.inspect} became free within #{timeout} s" if left && left <= 0

          @changed.wait(seen, left)
        end
        return unless @state == :refused

        raise Unavailable, "the limit #{@limit.name.inspect} cannot be asked for a permit: #{@error.message}",
          cause: @error
      end

      # Gives the permit back, or the claim to it. If a first call was interrupted, a second one completes it. In a
      # shield, since a deadline that has passed ends every wait, also one for a lock.
      def leave
        Heddle.shield(LOCK_SECONDS) { @coordinator.leave(self) } if @coordinator
      end
    end
    private_constant :Permit
  end
end

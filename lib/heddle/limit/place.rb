# frozen_string_literal: true

module Heddle
  class Limit
    # A caller's place in a limit: asked for, then granted or refused by an {Agent}, and left.
    #
    # @api private
    class Place
      LOCK_SECONDS = 5
      private_constant :LOCK_SECONDS

      # @return [Limit]
      attr_reader :limit

      # @return [String, nil] its name in Redis, given by the agent
      attr_reader :id

      # @return [Agent, nil]
      attr_reader :agent

      def initialize(limit)
        @limit = limit
        @state = :waiting
        @changed = EventCount.new
      end

      # Called by the agent, under its lock.
      def entered(agent, id)
        @id = id
        @agent = agent # last: from now on it must be left
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
          raise Exhausted, "no place in #{@limit.inspect} became free within #{timeout} s" if left && left <= 0

          @changed.wait(seen, left)
        end
        return unless @state == :refused

        raise Unavailable, "the limit #{@limit.name.inspect} cannot be asked for a place: #{@error.message}",
          cause: @error
      end

      # Gives the place back, or the claim to it; a second call completes the first. In a shield, since a deadline that
      # has passed ends every wait, also one for a lock.
      def leave
        Heddle.shield(LOCK_SECONDS) { @agent.leave(self) } if @agent
      end

      private
    end
    private_constant :Place
  end
end

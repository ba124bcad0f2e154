# frozen_string_literal: true

require "timeout"

module ApiFuzz
  module Operations
    # Deadlines, shields, Timeout.
    module Scopes
      def operation_deadline
        seconds = chance(0.2) ? 0 : moment * 4
        ends = now + seconds
        outer = bound?
        inside { Heddle.deadline(seconds) { steps(1 + roll(2)) } }
      rescue Heddle::DeadlineExceeded => error
        in_time = outer || now >= ends - 0.001 || round.left?(error)
        expect(in_time, "a deadline of #{seconds} s came #{ends - now} s early")
        after_a_scope
      end

      # Ends waits that take longer.
      def operation_endless_deadline
        seconds = moment * 2
        ends = now + seconds
        inside do
          Heddle.deadline(seconds) { waiting("a deadline of #{seconds} s", -> { now > ends }) { sleep } }
        end
        expect(false, "an endless sleep has ended")
      rescue Heddle::DeadlineExceeded
        after_a_scope
      end

      def operation_shield
        inside { Heddle.shield(moment * 4) { steps(1) } }
      rescue Heddle::DeadlineExceeded
        after_a_scope
      end

      def operation_timeout
        scope = Object.new
        inside(scope) { Timeout.timeout(moment * 4, LimitPassed, scope) { steps(1 + roll(2)) } }
      rescue LimitPassed => error
        raise unless error.scope.equal?(scope)
      ensure
        after_a_scope if @scopes.empty? && chance(0.3)
      end

      def operation_deadline_around_run
        return if deep?

        inside { Heddle.deadline(moment * 3) { operation_run } }
      rescue Heddle::DeadlineExceeded
        after_a_scope
      end

      private

      def inside(scope = Object.new)
        @scopes.push(scope)
        yield
      ensure
        @scopes.pop
      end

      # Any error that is raised here comes from a scope that was already left.
      def after_a_scope
        3.times { sleep(0) }
      end
    end
  end
end

# frozen_string_literal: true

module ApiFuzz
  module Operations
    # Tasks, runs, cancels.
    module Tasks
      def operation_sleep = nap(moment)

      def operation_turn = Array.new(1 + roll(5)) { sleep(0) }

      def operation_compute
        until_then = now + moment
        nil until now > until_then
      end

      def operation_spawn
        return operation_run unless task?
        return if deep?

        children = Array.new(1 + roll(4)) { start }
        cancel(children.sample(random: @random)) if chance(0.3)
        children.each { |actor| claim(actor) } if chance(0.8)
      end

      def operation_schedule
        return operation_run unless task?
        return if deep?

        actor = child
        Fiber.schedule { actor.live }
      end

      # Only its cancel ends this task.
      def operation_endless
        return unless task?

        actor = child
        actor.task = Heddle.spawn(name: actor.name) { actor.live { endless } }
        nap(moment) if chance(0.5)
        cancel(actor)
        claim(actor)
      ensure
        cancel(actor) if actor&.task
      end

      def operation_cancel_somebody
        victim = round.somebody(@random)
        cancel(victim) if victim&.task
      end

      def operation_wait_with_timeout
        return unless task? && !deep?

        actor = start
        limit = moment
        due = now + limit
        waiting("#{actor.name}, #{limit} s", -> { actor.task.ended? || now > due }) { actor.task.wait(limit) }
      ensure
        claim(actor) if actor&.task
      end

      def operation_run
        return if deep?

        first = child
        value = Heddle.run(grace: 1) do
          first.task = Heddle::Task.current
          first.live
        end
        expect(value.equal?(first.token), "a run returned another value than its block")
        expect(first.task.ended?, "a run has returned before its block's task has ended")
      rescue Heddle::TaskCancelled
        expect(first.disturbed?, "a run's block was cancelled without a cause")
      rescue => error
        raise unless round.left?(error)
      end

      def operation_statistics
        return unless Fiber.scheduler.is_a?(Heddle::Scheduler)

        Heddle.dump(StringIO.new)
        Heddle.stats
      end

      def operation_garbage
        return unless chance(0.2)

        GC.start
        GC.compact if GC.respond_to?(:compact) && chance(0.1)
      end

      def operation_nested_fiber
        return if RUBY_VERSION < "3.2" && !task?

        value = Fiber.new(blocking: false) { Fiber.new(blocking: false) { nap(moment) && 1 }.resume + 1 }.resume
        expect(value == 2, "nested fibers returned #{value}")
      end

      def operation_enumerator
        enumerator = Enumerator.new do |yielder|
          3.times do |index|
            sleep(moment)
            yielder << index
          end
        end
        values = [enumerator.next, enumerator.next, enumerator.next]
        expect(values == [0, 1, 2], "an Enumerator gave #{values}")
      end

      private

      def nap(seconds)
        due = now + seconds
        waiting("a sleep of #{seconds} s", -> { now > due }) { sleep(seconds) }
        expect(now > due - 0.001, "a sleep of #{seconds} s ended #{due - now} s early")
        true
      end

      def endless
        sleep
      ensure
        Heddle.shield(1) { sleep(0) } if chance(0.3)
      end

      def start
        actor = child
        actor.task = Heddle.spawn(name: actor.name) { actor.live }
        actor
      end

      def cancel(actor)
        actor.mark_cancelled
        actor.task.cancel
      end

      # A task's value is its own and comes once; otherwise the caller gets the error that left the task.
      def claim(actor)
        task = actor.task
        value = waiting("the value of #{actor.name}", -> { task.ended? }) { task.value }
        expect(value.equal?(actor.token), "#{actor.name} has another's value")
        expect(actor.lives == 1, "#{actor.name} ran #{actor.lives} times")
      rescue Heddle::TaskCancelled
        expect(actor.disturbed?, "#{actor.name} was cancelled without a cause")
      rescue => error
        raise unless error.equal?(task.error)
      end
    end
  end
end

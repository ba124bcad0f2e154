# frozen_string_literal: true

module ApiFuzz
  module Operations
    # Threads with and without loops, which may be killed and interrupted; what runs on the threads of Heddle.offload.
    module Threads
      WAYS = %i[plain_thread thread_with_run thread_with_scheduler thread_with_pool].freeze
      # Ruby before 3.3 does not close the scheduler of a thread that a kill or an error ends.
      CLOSED_AT_ANY_END = (RUBY_VERSION >= "3.3") ? WAYS : WAYS.first(2)

      def operation_thread
        return if deep? || round.crowded?

        actor = Actor.new(round, "#{@name}.#{@children += 1}", parent: self)
        way = CLOSED_AT_ANY_END.sample(random: @random)
        thread = Thread.new do
          actor.thread = Thread.current
          actor.way = way
          send(way, actor)
        end
        thread.report_on_exception = false
        round.thread(actor, thread)
        interrupt(actor, thread) if chance(0.5)
        reap(actor, thread)
      end

      def operation_interrupt_somebody
        actor = round.interrupted_thread(@random)
        interrupt(actor, actor.thread) if actor&.thread && actor != owner
      end

      def operation_offload
        work = %i[value error sleep compute].sample(random: @random)
        fault = RuntimeError.new("on purpose")
        value = Heddle.offload do
          case work
          when :value then @token
          when :error then raise fault
          when :sleep then sleep(moment) && @token
          when :compute then 2000.times.sum && @token
          end
        end
        expect(value.equal?(@token), "offload returned #{value.inspect}")
      rescue RuntimeError => error
        raise unless error.equal?(fault)
      end

      def operation_join
        helper = Thread.new { sleep(moment) && @token }
        helper.report_on_exception = false
        if chance(0.3)
          limit = moment
          due = now + limit
          waiting("a thread's end or #{limit} s", -> { !helper.alive? || now > due }) { helper.join(limit) }
        end
        value = waiting("a thread's end", -> { !helper.alive? }) { helper.value }
        expect(value.equal?(@token), "a thread's value is #{value.inspect}")
      ensure
        helper&.join if helper && !helper.alive?
      end

      private

      def plain_thread(actor) = actor.live

      def thread_with_run(actor)
        Heddle.run(grace: 1) { actor.live }
      end

      def thread_with_scheduler(actor)
        Fiber.set_scheduler(Heddle::Scheduler.new)
        Fiber.schedule { actor.live }
      end

      def thread_with_pool(actor)
        Heddle::FiberPool.new(2).map([actor]) { |one| one.live }
      end

      def interrupt(actor, thread)
        sleep(moment) if chance(0.7)
        kill = chance(0.5)
        actor.mark_interrupted(kill ? "killed" : "interrupted")
        kill ? thread.kill : thread.raise(Interrupt.new(actor))
      end

      # Waits for the thread and takes the error that left it.
      def reap(actor, thread)
        waiting("the end of the thread of #{actor}", -> { !thread.alive? }) { thread.join }
        expect(!round.living?(actor), "#{actor} is still there when its thread has ended")
      rescue Interrupt => error
        raise unless error.target.equal?(actor)
      rescue Heddle::TaskCancelled, Heddle::Cancellation
        raise unless actor.interrupted?
      rescue => error
        raise unless round.left?(error)
      end
    end
  end
end

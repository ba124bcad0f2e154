# frozen_string_literal: true

require "monitor"

module ApiFuzz
  module Operations
    # Locks, conditions and queues that all actors of a round share.
    module Locks
      def operation_mutex
        lock = round.mutex
        waiting("the Mutex", -> { !lock.locked? }) { lock.lock }
        begin
          alone(:mutex) { sleep(moment / 4) }
        ensure
          lock.unlock
        end
      end

      def operation_synchronize
        round.mutex.synchronize { alone(:mutex) { sleep(0) } }
      end

      def operation_monitor
        round.monitor.synchronize do
          round.monitor.synchronize { alone(:monitor) { sleep(moment / 4) } }
        end
      end

      def operation_condition
        limit = moment
        round.mutex.synchronize do
          round.condition.wait(round.mutex, limit)
          expect(round.mutex.owned?, "the Mutex is not owned after a wait for the condition")
        end
      end

      def operation_monitor_condition
        round.monitor.synchronize do
          round.monitor_condition.wait(moment)
          expect(round.monitor.mon_owned?, "the Monitor is not owned after a wait for the condition")
        end
      end

      def operation_signal
        round.mutex.synchronize { chance(0.5) ? round.condition.signal : round.condition.broadcast }
      end

      def operation_mutex_sleep
        round.mutex.synchronize do
          round.mutex.sleep(moment)
          expect(round.mutex.owned?, "the Mutex is not owned after Mutex#sleep")
        end
      end

      # Each value that is pushed is popped once.
      def operation_queue
        return unless task?

        queue = chance(0.5) ? Thread::Queue.new : Thread::SizedQueue.new(1 + roll(2))
        count = 1 + roll(5)
        reader = assist { popping(count, queue) }
        count.times { |index| queue << index }
        values = waiting("a reader of a queue of #{queue.size}", -> { reader.ended? }) { reader.value }
        expect(values == (0...count).to_a, "a queue gave #{values} for #{count}")
      rescue Heddle::TaskCancelled
        expect(disturbed?, "a queue's reader was cancelled without a cause")
      rescue => error
        raise unless reader && error.equal?(reader.error)
      ensure
        reader&.cancel
      end

      # The same between threads: a push must wake the waiting thread from outside of its loop.
      def operation_queue_of_a_thread
        queue = Thread::Queue.new
        pause = moment
        helper = Thread.new { sleep(pause) && queue << @token }
        value = waiting("a push from a thread", -> { !queue.empty? }) { queue.pop }
        expect(value.equal?(@token), "a queue gave another value")
      ensure
        helper&.kill
      end

      private

      # Somebody may cancel this task, so nobody may wait for room in it.
      def popping(count, queue)
        Array.new(count) { queue.pop }
      ensure
        queue.close
      end

      # A thread that is interrupted in its sleep unlocks the lock in +ensure+; from then on another thread may hold it.
      def alone(what)
        holder = round.holders[what]
        expect(holder.nil?, "#{what} is held by #{holder}, too")
        round.holders[what] = self
        yield
        expect(round.holders[what].equal?(self), "#{what} was given to #{round.holders[what]} meanwhile")
      ensure
        round.holders[what] = nil if round.holders[what].equal?(self)
      end
    end
  end
end

# frozen_string_literal: true

module ApiFuzz
  module Operations
    # Pools inside of runs and outside of any run.
    module Pools
      def operation_map
        return if deep?

        items = Array.new(1 + roll(6)) { |index| [index, child] }
        pool = Heddle::FiberPool.new(1 + roll(3))
        values = pool.map(items) do |index, actor|
          actor.live
          index
        end
        expect(values == (0...items.size).to_a, "map returned #{values.inspect} for #{items.size} items")
        expect(items.all? { |_, actor| actor.lives == 1 }, "map called its block not once for each item")
      rescue Heddle::TaskCancelled
        expect(disturbed?, "an item of map was cancelled without a cause")
      rescue => error
        raise unless round.left?(error)
      ensure
        pool&.close
      end

      # Another thread passes its work to the pool.
      def operation_pool_from_thread
        return unless task?

        pool = Heddle::FiberPool.new(1 + roll(2), queue: roll(3))
        count = 1 + roll(5)
        helper = Thread.new do
          Thread.current.report_on_exception = false
          Array.new(count) { |index| pool.spawn { sleep(0) && index } }.map(&:value)
        end
        values = waiting("a thread that spawns into a pool", -> { !helper.alive? }) { helper.value }
        expect(values == (0...count).to_a, "a pool gave another thread #{values.inspect}")
      rescue Heddle::TaskCancelled
        expect(disturbed?, "a pool's tasks were cancelled without a cause")
      ensure
        helper&.kill
      end

      # Outside of any run each call of the pool that waits is a run, and spawn only queues.
      def operation_pool_alone
        return if task? || deep?

        pool = Heddle::FiberPool.new(1 + roll(3), queue: 1 + roll(4))
        waited = Array.new(roll(8)) { |index| pool.spawn { pause_in_pool && index } }
        values = waited.map { |task| value_in_pool(task) } if chance(0.5)
        (1 + roll(3)).times { call_alone(pool) }
        expect(values == (0...waited.size).to_a, "tasks of a pool have #{values.inspect}") if values
        pool.close
        expect(pool.statistics.values_at(:running, :queued) == [0, 0], "a closed pool has #{pool.statistics}")
        expect(Fiber.scheduler.nil?, "a pool has left its scheduler on the thread")
        pool = nil
      rescue Heddle::TaskCancelled
        expect(disturbed?, "a pool's task was cancelled without a cause")
      ensure
        pool&.close
      end

      private

      def call_alone(pool)
        case roll(5)
        when 0 then expect(pool.map(1..4) { |n| pause_in_pool && n } == [1, 2, 3, 4], "map outside of a run")
        when 1 then pool.each(1..3) { round.mutex.synchronize { alone(:mutex) { sleep(0) } } }
        when 2 then pool.wait(moment)
        when 3 then fail_in_pool(pool)
        else leave_pool_to_the_collector
        end
      end

      def value_in_pool(task)
        waiting("a pool's task", -> { task.ended? }) { task.value }
      end

      def pause_in_pool
        case roll(4)
        when 0 then sleep(moment / 2)
        when 1 then IO.pipe.each(&:close)
        when 2 then round.mutex.synchronize { alone(:mutex) { sleep(0) } }
        else sleep(0)
        end
        true
      end

      def fail_in_pool(pool)
        fault = RuntimeError.new("on purpose")
        raised = nil
        begin
          pool.map(1..3) { |n| (n == 2) ? raise(fault) : sleep(moment) }
        rescue RuntimeError => raised
          raise unless raised.equal?(fault)
        end
        expect(raised, "map has swallowed a block's error")
      end

      # Its blocks never run, and are reported only at the end of the program.
      def leave_pool_to_the_collector
        Heddle::FiberPool.new(2).map(1..2) { sleep(0) }
        GC.start if chance(0.2)
      end
    end
  end
end

# frozen_string_literal: true

# Heddle::FiberPool inside a run and outside of any run.
module FiberPoolSuite
  def test_map_keeps_the_order
    in_host do
      assert_equal (0...30).map { |index| index * 2 },
        Heddle::FiberPool.new(5).map(0...30) { |index| sleep(0.001 * (index % 3)) && index * 2 }
      assert_equal [], Heddle::FiberPool.new(5).map([]) { flunk }
      assert_equal [[1, 2], [3, 4]], Heddle::FiberPool.new(5).map({1 => 2, 3 => 4}) { |pair| pair }
      assert_equal [["a", 0], ["b", 1]],
        Heddle::FiberPool.new(5).map(%w[a b].each_with_index) { |letter, index| [letter, index] }
      assert_equal [nil, nil], Heddle::FiberPool.new(5).map([1, 2]) {}
    end
  end

  def test_map_and_each_of_something_without_items
    in_host do
      error = assert_raises(TypeError) { Heddle::FiberPool.new(2).map(nil) {} }
      assert_includes error.message, "nil has no method each"
    end
  end

  def test_no_more_tasks_than_the_size_run_at_once
    in_host do
      now = most = 0
      Heddle::FiberPool.new(4).map(0...40) do
        now += 1
        most = [most, now].max
        sleep(0.0005)
        now -= 1
      end
      assert_equal 4, most
    end
  end

  def test_map_returns_errors
    in_host do
      values = Heddle::FiberPool.new(2).map(0...5, errors: :return) do |item|
        sleep(0.001)
        item.odd? ? raise(IOError, "item #{item}") : item
      end
      assert_equal [0, "item 1", 2, "item 3", 4], values.map { |value| value.is_a?(IOError) ? value.message : value }
      assert_equal [[1, 2]], Heddle::FiberPool.new(2).map({1 => 2}, errors: :return) { |key, value| [key, value] }
    end
  end

  def test_map_raises_what_is_no_standard_error_and_never_returns_a_passed_deadline
    in_host do
      pool = Heddle::FiberPool.new(2)
      assert_raises(NotImplementedError) { pool.map(0...5, errors: :return) { raise NotImplementedError } }
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.05) { pool.map(0...1000, errors: :return) { sleep } }
      end
      error = assert_raises(ArgumentError) { pool.map(0...5, errors: :ignore) { flunk } }
      assert_includes error.message, "errors: :ignore must be :raise"
    end
  end

  def test_the_first_error_cancels_the_rest_and_is_raised
    in_host do
      ensured = 0
      started = []
      error = assert_raises(IOError) do
        Heddle::FiberPool.new(5).map(0...100) do |index|
          started << index
          (index == 3) ? sleep(0.002) && raise(IOError, "third") : sleep
        ensure
          ensured += 1
        end
      end
      assert_equal ["third", [0, 1, 2, 3, 4], 5], [error.message, started, ensured]
    end
  end

  def test_an_error_before_the_first_wait
    in_host do
      pool = Heddle::FiberPool.new(2)
      report = stderr_of {
        assert_equal "at once", assert_raises(IOError) { pool.map(0...10) { raise IOError, "at once" } }.message
      }
      assert_empty report
      assert_equal [1, 2], pool.map([1, 2]) { |number| number } # it continues
    end
  end

  def test_each_over_an_endless_enumerator
    in_host do
      seen = []
      numbers = Enumerator.produce(0) { |last| last + 1 }
      assert_raises(StopIteration) do
        Heddle::FiberPool.new(3).each(numbers) do |number|
          sleep(0.0001)
          raise StopIteration if number == 50
          seen << number
        end
      end
      assert_operator seen.size, :>=, 45
      assert_operator seen.max, :<, 60
      pool = Heddle::FiberPool.new(3)
      assert_same pool, pool.each(1..3) {}
    end
  end

  def test_an_error_of_the_items_themselves
    in_host do
      ended = 0
      items = Enumerator.new do |y|
        y << 1
        y << 2
        raise IOError, "no more items"
      end
      error = assert_raises(IOError) do
        Heddle::FiberPool.new(5).each(items) do
          sleep
        ensure
          ended += 1
        end
      end
      assert_equal ["no more items", 2], [error.message, ended]
    end
  end

  # The source would wait for ever.
  def test_an_error_is_raised_while_the_source_waits_for_its_next_item
    waits = {sleep: -> { sleep }, queue: -> { Thread::Queue.new.pop }, in_another_fiber: lambda {
      Fiber.new(blocking: false) { sleep }.resume
    }}
    waits.each_value do |wait|
      left = false
      items = Enumerator.new do |y|
        y << 1
        y << 2
        wait.call
      ensure
        left = true
      end
      in_host do
        %i[map each].each do |method|
          pool = Heddle::FiberPool.new(5)
          error = assert_raises(IOError) do
            assert_within(10) { pool.public_send(method, items) { |item| sleep(0.001) && raise(IOError, item.to_s) } }
          end
          assert_equal ["1", true], [error.message, left]
          assert_equal [3], pool.map([3]) { |item| sleep(0.001) && item } # nothing more is raised
        end
      end
    end
  end

  def test_an_error_while_the_source_turns_exceptions_into_its_own
    in_host do
      items = Enumerator.new do |y|
        y << 1
        begin
          sleep
        rescue Exception # rubocop:disable Lint/RescueException
          raise ArgumentError, "the source's"
        end
      end
      error = assert_raises(IOError) { Heddle::FiberPool.new(5).each(items) { sleep(0.001) && raise(IOError, "a") } }
      assert_equal "a", error.message
    end
  end

  def test_an_error_before_the_source_waits
    in_host do
      items = Enumerator.new do |y|
        y << 1
        flunk "waits for an item that nobody wants"
      end
      assert_raises(IOError) { Heddle::FiberPool.new(5).map(items) { raise IOError } }
    end
  end

  def test_a_deadline_beside_an_error_while_the_source_waits
    in_host do
      items = Enumerator.new do |y|
        y << 1
        sleep
      end
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.02) { Heddle::FiberPool.new(5).map(items) { sleep(5) } }
      end
    end
  end

  def test_spawn_waits_while_the_queue_is_full
    in_host do
      pool = Heddle::FiberPool.new(2, queue: 3)
      most = 0
      tasks = Array.new(30) do |index|
        task = pool.spawn { sleep(0.001) && index }
        most = [most, pool.statistics[:queued]].max
        task
      end
      assert_equal [*0...30], tasks.map(&:value)
      assert_operator most, :<=, Fiber.scheduler ? 3 : 5, "outside of any run none has a place yet"
      assert_equal({size: 2, running: 0, queued: 0, spawned: 30}, pool.wait.statistics)
    end
  end

  def test_a_queue_without_places
    in_host do
      pool = Heddle::FiberPool.new(1, queue: 0)
      order = []
      3.times { |index| pool.spawn { order << index && sleep(0.001) && order << index } }
      pool.wait
      assert_equal [0, 0, 1, 1, 2, 2], order
    end
  end

  def test_queued_tasks_run_in_their_order
    in_host do
      order = []
      pool = Heddle::FiberPool.new(1, queue: 100)
      50.times { |index| pool.spawn { sleep(0) && order << index } }
      pool.wait
      assert_equal [*0...50], order
    end
  end

  def test_cancelling_a_queued_task
    in_host do
      pool = Heddle::FiberPool.new(1, queue: 10)
      ran = []
      tasks = Array.new(4) { |index| pool.spawn { sleep(0.001) && ran << index } }
      assert_equal :queued, tasks[2].status
      tasks[2].cancel
      assert_equal :cancelled, tasks[2].status
      assert_raises(Heddle::TaskCancelled) { tasks[2].value }
      pool.wait
      assert_equal [0, 1, 3], ran
    end
  end

  def test_cancelled_tasks_make_room_in_the_queue
    in_host do
      pool = Heddle::FiberPool.new(1, queue: 2)
      first = pool.spawn { sleep(0.01) }
      queued = Array.new(2) { pool.spawn { flunk } }
      queued.each(&:cancel)
      last = assert_within(2, remeasure: 0) { Array.new(2) { |index| pool.spawn { index } } }
      assert_equal [0, 1], last.map(&:value)
      first.value
      pool.close
    end
  end

  def test_cancelling_a_running_task_starts_the_next
    in_host do
      pool = Heddle::FiberPool.new(1, queue: 10)
      first = pool.spawn { sleep }
      second = pool.spawn { :second }
      first.cancel
      assert_equal :second, second.value
    end
  end

  def test_wait_with_a_timeout
    in_host do
      pool = Heddle::FiberPool.new(1)
      task = pool.spawn { sleep }
      assert_nil assert_within(1, at_least: 0.01) { pool.wait(0.01) }
      task.cancel
      assert_same pool, pool.wait(10)
      assert_same pool, pool.wait(0)
    end
  end

  def test_close
    in_host do
      pool = Heddle::FiberPool.new(2)
      ended = []
      4.times { |index| pool.spawn { sleep(0.001) && ended << index } }
      assert_same pool, pool.close
      assert_equal [0, 1, 2, 3], ended.sort
      assert_predicate pool, :closed?
      assert_same pool, pool.close
      [-> { pool.spawn {} }, -> { pool.map([1]) {} }, -> { pool.each([1]) {} }].each do |use|
        error = assert_raises(Heddle::PoolClosed, &use)
        assert_kind_of ClosedQueueError, error
        assert_includes error.message, "closed"
      end
    end
  end

  def test_names_and_inspect
    in_host do
      pool = Heddle::FiberPool.new(2, name: "downloads")
      assert_equal "downloads", pool.spawn { Heddle::Task.current.name }.value
      assert_includes pool.inspect, '"downloads"'
    end
  end

  def test_fibers_are_reused
    in_host do
      assert_operator Heddle::FiberPool.new(3).map(0...100) { sleep(0) && Fiber.current }.uniq.size, :<=, 4
    end
  end

  def test_spawn_from_eight_threads_at_once
    in_host do
      pool = Heddle::FiberPool.new(5, queue: 10)
      threads = Array.new(8) { |number|
        Thread.new { Array.new(100) { |index| pool.spawn { sleep(0) && number * 100 + index } }.map(&:value) }
      }
      # Outside a run the pool's loop runs only in the pool's own calls. Between two of them the threads must get
      # the GVL. A timeout would cancel tasks there.
      pool.wait while threads.any?(&:alive?) && sleep(0.0005)
      assert_equal [*0...800], threads.flat_map(&:value)
      assert_equal 800, pool.wait.statistics[:spawned]
    end
  end

  def test_a_pool_in_a_pool
    in_host do
      sums = Heddle::FiberPool.new(3)
        .map(1..5) { |outer| Heddle::FiberPool.new(2).map(1..4) { |inner| sleep(0.0005) && outer * inner }.sum }
      assert_equal [10, 20, 30, 40, 50], sums
    end
  end

  def test_many_pools_leave_nothing_open
    in_host do
      Heddle::FiberPool.new(2).map(1..3) { sleep(0) }
      GC.start
      before = descriptor_count
      200.times { Heddle::FiberPool.new(2).tap { |pool| pool.map(1..3) { sleep(0) } }.close }
      assert_operator descriptor_count, :<=, before
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "minitest/mock"
require "timeout"

class OffloadTest < Minitest::Test
  include LoopHelpers

  # Ruby's own sleep in a thread without a scheduler, as a C library waits.
  def test_other_tasks_run_during_an_offload
    Heddle.run do
      ticks = 0
      ticker = Heddle.spawn { loop { sleep(0.002) && ticks += 1 } }
      assert_equal [:slept, false], Heddle.offload { sleep(0.05) && [:slept, Thread.current == Thread.main] }
      ticker.cancel
      assert_operator ticks, :>, 3
    end
  end

  def test_without_a_scheduler_the_block_runs_directly
    thread = nil
    assert_equal 3, Heddle.offload { (thread = Thread.current) && 3 }
    assert_same Thread.current, thread
    assert_raises(ArgumentError) { Heddle.offload }
  end

  def test_an_error_has_the_blocks_backtrace_above_the_callers
    error = Heddle.run { assert_raises(IOError) { Heddle.offload { raise_here } } }
    assert_equal "of the block", error.message
    assert_includes error.backtrace.first, "raise_here"
    assert(error.backtrace.any? { |line| line.include?(__method__.to_s) }, error.backtrace.join("\n"))
  end

  def test_errors_beyond_standard_error
    Heddle.run do
      assert_raises(NotImplementedError) { Heddle.offload { raise NotImplementedError } }
      assert_raises(SystemExit) { Heddle.offload { exit(3) } }
      assert_raises(UncaughtThrowError) { catch(:tag) { Heddle.offload { throw :tag } } }
      assert_match(/ended its thread/, assert_raises(ThreadError) { Heddle.offload { Thread.exit } }.message)
      assert_equal 1, Heddle.offload { 1 }
    end
  end

  def test_a_frozen_error
    error = IOError.new("frozen").freeze
    Heddle.run { assert_same error, assert_raises(IOError) { Heddle.offload { raise error } } }
  end

  def test_no_more_threads_than_allowed_and_each_gets_its_turn
    assert_three_at_once
  end

  # The first two blocks wait for the last one.
  def test_blocks_in_the_queue_begin_when_the_limit_is_raised
    before, Heddle::Offload.threads = Heddle::Offload.threads, 1
    gate = Thread::Queue.new
    Heddle.run do
      waiting = Array.new(2) { Heddle.spawn { Heddle.offload { gate.pop } } }
      last = Heddle.spawn { Heddle.offload { 2.times { gate << :last } } }
      wait_until(what: "the first block") { gate.num_waiting == 1 }
      Heddle::Offload.threads = 3
      assert_equal %i[last last], Heddle.deadline(stretched(5)) { waiting.map(&:value) }
      last.value
    end
  ensure
    Heddle::Offload.threads = before
  end

  def test_idle_threads_keep_to_a_limit_that_is_lowered
    gate = Thread::Queue.new
    Heddle.run do
      tasks = Array.new(10) { Heddle.spawn { Heddle.offload { gate.pop } } }
      wait_until(what: "ten threads") { gate.num_waiting == 10 }
      10.times { gate << nil }
      tasks.each(&:value)
    end
    assert_three_at_once
  end

  def test_the_number_of_threads_is_checked
    assert_raises(TypeError) { Heddle::Offload.threads = 1.5 }
    assert_raises(ArgumentError) { Heddle::Offload.threads = 0 }
  end

  def test_idle_threads_end
    Heddle.run { Array.new(5) { Heddle.spawn { Heddle.offload { sleep(0.01) } } }.each(&:value) }
    wait_until(what: "the end of the idle threads") { Thread.list.none? { |thread| thread.name == "heddle offload" } }
    assert_equal 1, Heddle.run { Heddle.offload { 1 } }
  end

  def test_a_cancel_reaches_the_block
    seen = Thread::Queue.new
    Heddle.run do
      started = Thread::Queue.new
      task = Heddle.spawn do
        Heddle.offload do
          started << 1
          sleep
        rescue Heddle::Cancellation => error
          seen << error
          raise
        end
      end
      started.pop
      task.cancel
      task.wait
      assert_equal :cancelled, task.status
    end
    assert_includes seen.pop.backtrace.join("\n"), __method__.to_s
  end

  def test_a_timeout_reaches_the_block
    assert_reaches_the_block(Timeout::Error) { |&work| Timeout.timeout(0.02, &work) }
  end

  def test_a_deadline_reaches_the_block
    assert_reaches_the_block(Heddle::DeadlineExceeded) { |&work| Heddle.deadline(0.02, &work) }
  end

  def test_a_block_that_waits_for_a_thread_can_be_cancelled
    Heddle.run do
      before, Heddle::Offload.threads = Heddle::Offload.threads, 1
      gate = Thread::Queue.new
      first = Heddle.spawn { Heddle.offload { gate.pop } }
      ran = false
      second = Heddle.spawn { Heddle.offload { ran = true } }
      second.cancel
      second.wait
      gate << :first
      assert_equal :first, first.value
      assert_equal [:cancelled, false], [second.status, ran]
    ensure
      Heddle::Offload.threads = before
    end
  end

  # The block will not end: its caller continues, and another thread takes its place.
  def test_a_block_that_refuses_to_end_is_left_alone
    release = Thread::Queue.new
    report = stderr_of do
      Heddle.run do
        before, Heddle::Offload.threads = Heddle::Offload.threads, 1
        started = Thread::Queue.new
        task = Heddle.spawn { Heddle.offload { (started << 1) && refuse(release) } }
        started.pop
        task.cancel
        assert task.wait(10), "the caller did not give up"
        assert_equal 2, Heddle.offload { 2 }
      ensure
        Heddle::Offload.threads = before
      end
    end
    assert_match(/the caller of an offloaded block gave up \(Heddle::Cancellation/, report)
    assert_includes report, "refuse"
  ensure
    release << 1
    wait_until(what: "the end of the abandoned thread") do
      Thread.list.none? { |thread| thread.name == "heddle offload" }
    end
  end

  # An exception that arrives as the block ends must not interrupt the next block on that thread.
  def test_an_interrupt_never_interrupts_another_block
    before, Heddle::Offload.threads = Heddle::Offload.threads, 1
    Heddle.run do
      300.times do |index|
        task = Heddle.spawn { Heddle.offload { Thread.pass } }
        sleep(0) if index.odd?
        task.cancel
        assert_equal index, Heddle.offload { Thread.pass || index }
        task.wait
      end
    end
  ensure
    Heddle::Offload.threads = before
  end

  def test_locals_stay_apart_and_storage_is_copied
    Heddle.run do
      Thread.current[:local] = 1
      Fiber[:shared] = "of the caller" if Fiber.respond_to?(:[])
      seen = Heddle.offload { [Thread.current[:local], Thread.current[:left] = :behind] }
      assert_equal [nil, :behind], seen
      assert_nil Heddle.offload { Thread.current[:left] }
      next unless Fiber.respond_to?(:[])

      assert_equal "of the caller", Heddle.offload { Fiber[:shared].tap { Fiber[:shared] = 2 } }
      assert_equal "of the caller", Fiber[:shared]
    end
  end

  def test_nothing_is_left_on_the_fiber_for_the_next_block
    workers = Heddle.const_get(:WorkerThreads).new("test", 1)
    Heddle.run do
      fiber = workers.run(-> { Fiber.current.tap { |current| current.instance_variable_set(:@left, :behind) } })
      names = workers.run(-> { Fiber.current.instance_variables if Fiber.current.equal?(fiber) })
      assert_equal [], names
    end
  end

  # As ActiveRecord's pool does, which takes back only the connections of dead fibers.
  def test_a_fiber_that_a_library_retires_runs_no_other_block
    out = assert_child(<<~RUBY)
      Heddle::FiberPool.retire_if do |fiber|
        fiber.instance_variable_get(:@owner) || fiber.instance_variable_get(:@fails)&.upcase
      end
      Heddle::Offload.threads = 1
      Heddle.run do
        [:@owner, :@fails].each do |name|
          fiber = Heddle.offload { Fiber.current.tap { |current| current.instance_variable_set(name, 1) } }
          queued = Array.new(3) { Heddle.spawn { Heddle.offload { Fiber.current.equal?(fiber) } } }
          p queued.map(&:value)
          sleep(0.001) while fiber.alive?
        end
      end
    RUBY
    assert_equal "[false, false, false]\n" * 2, out
  end

  def test_no_scheduler_inside_and_nested
    Heddle.run do
      assert_equal [nil, nil, 5], Heddle.offload { [Fiber.scheduler, Heddle::Task.current, Heddle.offload { 5 }] }
      assert_raises(Heddle::SchedulerMissing) { Heddle.offload { Heddle.spawn {} } }
      assert_equal 6, Heddle.offload { Heddle.run { Heddle.spawn { sleep(0.001) && 6 }.value } }
    end
  end

  def test_a_block_that_ends_its_thread_does_not_strand_the_next
    before, Heddle::Offload.threads = Heddle::Offload.threads, 1
    Heddle.run do
      assert_equal :done, Heddle.offload { :done } # the thread exists
      20.times do |index|
        first = Heddle.spawn { assert_raises(ThreadError) { Heddle.offload { sleep(0.001) && Thread.exit } } }
        assert_equal index, Heddle.deadline(5) { Heddle.offload { index } }
        first.value
      end
    end
  ensure
    Heddle::Offload.threads = before
  end

  # Nor may their blocks, with all objects that these refer to, be kept for as long as other blocks keep the threads
  # busy.
  def test_abandoned_blocks_are_removed_from_the_queue
    workers = Heddle.const_get(:WorkerThreads).new("test", 1)
    release = Thread::Queue.new
    Heddle.run do
      busy = Heddle.spawn { workers.run(-> { release.pop }) }
      wait_until(what: "the thread's start") { release.num_waiting == 1 }
      tasks = Array.new(50) {
        Heddle.spawn { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.01) { workers.run(-> {}) } } }
      }
      tasks.each(&:value)
      assert_equal 0, workers.instance_variable_get(:@queue).size
      release << :released
      assert_equal :released, busy.value
      assert_equal :next, workers.run(-> { :next })
    end
  end

  def test_in_several_threads_at_once
    threads = Array.new(4) { |number|
      Thread.new do
        Heddle.run { Array.new(20) { |index| Heddle.spawn { Heddle.offload { number * index } } }.map(&:value) }
      end
    }
    assert_equal Array.new(4) { |number| Array.new(20) { |index| number * index } }, threads.map(&:value)
  end

  def test_in_a_child_of_fork
    out = assert_child(<<~RUBY)
      Heddle.run do
        Heddle.offload { 1 }
        pid = fork { exit!(Heddle.run { Heddle.offload { 7 } }) }
        puts Process.wait2(pid).last.exitstatus
      end
    RUBY
    assert_equal "7\n", out
  end

  def test_a_thread_that_does_not_start_is_not_counted
    workers = Heddle.const_get(:WorkerThreads).new("test", 1)
    Heddle.run do
      Thread.stub(:new, ->(*) { raise ThreadError, "no more" }) do
        assert_raises(ThreadError) { workers.run(-> { :dropped }) }
      end
      assert_equal :ran, workers.run(-> { :ran })
    end
  end

  # Ruby keeps masks of interrupts for each thread, not for each fiber. A mask that a task held while it waited would
  # hold for threads that other tasks start, and for ever in a child that they fork.
  def test_a_task_that_waits_for_the_lock_masks_no_interrupts
    out = assert_child(<<~RUBY, timeout: 30)
      workers = Heddle.const_get(:WorkerThreads).new("test", 1)
      lock = workers.instance_variable_get(:@lock)
      waits = false
      lock.define_singleton_method(:synchronize) { |&block| (waits = true) && super(&block) }
      outcome = -> { Thread.new { Heddle.deadline(0.01) { sleep } rescue $!.class }.join(5)&.value.inspect }
      Heddle.run do
        lock.lock
        task = Heddle.spawn { workers.run(-> { :ran }) }
        sleep(0) until waits
        puts outcome.call
        Process.wait(fork { puts(outcome.call) || $stdout.flush && exit!(0) })
        lock.unlock
        puts task.value.inspect
      end
    RUBY
    assert_equal "Heddle::DeadlineExceeded\nHeddle::DeadlineExceeded\n:ran\n", out
  end

  # With the status that it would have in a thread, and after its at_exit blocks. Nobody in the child waits for the
  # block.
  def test_a_child_that_goes_on_after_a_fork_in_the_block
    outcome = in_child(<<~'RUBY')
      PARENT = $$
      at_exit { puts "at_exit" unless $$ == PARENT }
      {"nil" => 0, "raise('in the child')" => 1, "exit(3)" => 3, "abort('aborts')" => 1,
       "Thread.exit" => 0}.each do |code, status|
        Heddle.run do
          pid = Heddle.offload { fork || eval(code) }
          puts "the caller continues in the child" unless $$ == PARENT
          ended = Process.wait2(pid).last.exitstatus
          puts "#{code}: #{ended}" unless ended == status
        end
      end
    RUBY
    assert_equal "at_exit\n" * 5, outcome.out
    assert_includes outcome.err, "in the child (RuntimeError)"
  end

  # Its first calls find all of the parent's threads still recorded.
  def test_in_several_threads_of_a_child_of_fork
    out = assert_child(<<~RUBY)
      workers = Heddle.const_get(:WorkerThreads).new("test", 4)
      workers.run(-> { 1 })
      resets = 0
      workers.define_singleton_method(:reset) do
        resets += 1
        sleep(0.05)
        super()
      end
      pid = fork do
        values = Array.new(3) { |index| Thread.new { workers.run(-> { index }) } }.map(&:value)
        puts values.inspect, resets
        exit!(0)
      end
      Process.wait(pid)
    RUBY
    assert_equal "[0, 1, 2]\n1\n", out
  end

  def test_the_process_ends_while_a_block_runs
    assert_equal "ensured\n",
      assert_child("Heddle.run { Heddle.spawn { begin Heddle.offload { sleep }; ensure; puts 'ensured' end }; exit }",
        timeout: 10)
  end

  private

  def assert_three_at_once
    Heddle.run do
      before, Heddle::Offload.threads = Heddle::Offload.threads, 3
      now = most = 0
      lock = Thread::Mutex.new
      tasks = Array.new(30) do |index|
        Heddle.spawn do
          Heddle.offload do
            lock.synchronize { most = [most, now += 1].max }
            sleep(0.002)
            lock.synchronize { now -= 1 }
            index
          end
        end
      end
      assert_equal [*0...30], tasks.map(&:value)
      assert_operator most, :<=, 3
    ensure
      Heddle::Offload.threads = before
    end
  end

  # The limit's exception ends an offloaded block, whose +ensure+ runs. A block that did not begin within the limit,
  # on a busy machine, proves nothing: it runs again.
  def assert_reaches_the_block(error, &limit)
    events = []
    Heddle.run do
      while events.empty?
        assert_raises(error) do
          limit.call do
            Heddle.offload do
              events << :begun
              sleep
            ensure
              events << :ended
            end
          end
        end
      end
    end
    assert_equal :ended, events.last
  end

  def raise_here = raise(IOError, "of the block")

  def refuse(release)
    release.pop
  rescue Heddle::Cancellation
    retry
  end
end

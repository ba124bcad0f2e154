# frozen_string_literal: true

require "test_helper"
require "concurrent"
require "weakref"
require "heddle/executor"
require "support/interrupt_at_moment"

# What concurrent-ruby's own suite asks of an executor: of its own pool of threads, and of Heddle's executor.
module ExecutorBehaviour
  SHORT = 0.02

  def setup
    @logger = Concurrent.global_logger
    Concurrent.global_logger = ->(*) {}
  end

  def teardown
    Concurrent.global_logger = @logger
    @made&.each do |executor|
      executor.kill
      assert executor.wait_for_termination(5), "#{executor} ends"
    end
    super
  end

  def test_runs_blocks_with_their_arguments
    seen = Thread::Queue.new
    assert_equal true, executor.post(1, 2, 3) { |*arguments| seen << arguments }
    assert_equal [1, 2, 3], seen.pop
    assert_same executor, executor << -> { seen << :pushed }
    assert_equal :pushed, seen.pop
    assert_raises(ArgumentError) { executor.post }
  end

  def test_attributes_of_an_executor_service
    assert_kind_of Concurrent::ExecutorService, executor
    refute_predicate executor, :serialized?
    refute_predicate executor, :can_overflow?
    assert_predicate make(max_queue: 1), :can_overflow?
    assert_predicate executor, :auto_terminate?
    assert_equal [0, 0, -1], [executor.length, executor.queue_length, executor.remaining_capacity]
    assert_equal [0, 10], [executor.min_length, executor.max_length]
    assert_equal 7, make(max_queue: 7).remaining_capacity
    assert_equal 7, make(max_queue: 7).max_queue
    assert_equal :discard, make(fallback_policy: :discard).fallback_policy
  end

  def test_states
    gate = Concurrent::Event.new
    assert_equal [true, false, false], states
    executor.post { gate.wait }
    assert_equal true, executor.shutdown
    assert_equal [false, true, false], states
    refute executor.wait_for_termination(SHORT)
    gate.set
    assert executor.wait_for_termination(5)
    assert_equal [false, false, true], states
    assert_equal true, executor.shutdown
  end

  def test_ends_at_once_when_nothing_runs
    executor.shutdown
    assert executor.wait_for_termination(0)
    assert_predicate executor, :shutdown?
  end

  def test_shutdown_lets_all_blocks_end_and_accepts_no_more
    done = Concurrent::AtomicFixnum.new
    executor = make(2)
    6.times do
      executor.post do
        sleep(SHORT)
        done.increment
      end
    end
    executor.shutdown
    assert_raises(Concurrent::RejectedExecutionError) { executor.post { done.increment } }
    assert executor.wait_for_termination(5)
    assert_equal 6, done.value
    assert_equal 6, executor.completed_task_count
    assert_equal [0, 0], [executor.length, executor.queue_length]
  end

  # concurrent-ruby's own specs ask right after they post, when no block has begun.
  def test_length_counts_blocks_that_have_a_fiber
    executor = make(3)
    gate = Concurrent::Event.new
    lengths = [2, 3].map do |more|
      more.times { executor.post { gate.wait } }
      executor.length
    end
    assert_equal [2, 3], lengths
    wait_until { executor.active_count == 3 }
    gate.set
    wait_until { executor.active_count.zero? }
  end

  def test_kill_drops_what_waits
    ran = Concurrent::AtomicFixnum.new
    executor = make(1)
    begun = Concurrent::Event.new
    executor.post do
      begun.set
      sleep
    end
    executor.post { ran.increment }
    begun.wait
    executor.kill
    assert executor.wait_for_termination(5)
    assert_raises(Concurrent::RejectedExecutionError) { executor.post { ran.increment } }
    assert_equal 0, ran.value
  end

  def test_abort
    fill(executor = make(1, max_queue: 1)) do |done|
      20.times { assert_raises(Concurrent::RejectedExecutionError) { executor.post { done << :refused } } }
      assert_raises(Concurrent::RejectedExecutionError) { executor << -> { done << :refused } }
      assert_equal [1, 0], [executor.queue_length, executor.remaining_capacity]
    end
  end

  def test_discard
    fill(executor = make(1, max_queue: 1, fallback_policy: :discard)) do |done|
      20.times { assert_equal false, executor.post { done << :refused } }
    end
    assert_equal false, executor.post {}
  end

  def test_caller_runs
    called = []
    fill(executor = make(1, max_queue: 1, fallback_policy: :caller_runs)) do
      3.times { |number| assert_equal true, executor.post { called << [number, Thread.current] } }
      assert_equal true, executor.post { raise "for the log" }
    end
    executor.post { called << [3, Thread.current] }
    assert_equal (0..3).map { |number| [number, Thread.current] }, called
  end

  def test_synchronous
    executor = make(1, synchronous: true)
    gate = Concurrent::Event.new
    executor.post { gate.wait }
    assert_raises(Concurrent::RejectedExecutionError) { executor.post {} }
    gate.set
    wait_until { executor.post {} rescue nil } # rubocop:disable Style/RescueModifier
    assert_raises(ArgumentError) { make(1, synchronous: true, max_queue: 1) }
  end

  def test_refuses_values_it_cannot_use
    assert_raises(ArgumentError) { make(1, fallback_policy: :bogus) }
    assert_raises(ArgumentError) { make(-1) }
  end

  def test_an_error_ends_its_block_alone
    executor = make(1)
    executor.post { raise "for the log" }
    failed = Concurrent::Promises.future_on(executor) { raise KeyError, "of the block" }
    assert_equal :fine, Concurrent::Promises.future_on(executor) { :fine }.value!(5)
    assert_equal "of the block", failed.reason.message
    wait_until { executor.completed_task_count >= 2 }
  end

  def test_futures_of_all_kinds
    assert_equal 42, Concurrent::Future.execute(executor: executor) { 42 }.value(5)
    assert_equal 43, Concurrent::Promise.execute(executor: executor) { 42 }.then { |value| value + 1 }.value(5)
    assert_equal 44, Concurrent::ScheduledTask.execute(SHORT, executor: executor) { 44 }.value(5)
    assert_equal [0, 1, 2],
      Concurrent::Promises.zip(*3.times.map { |i| Concurrent::Promises.future_on(executor) { i } }).value!(5)
    assert_equal 46, Concurrent.dataflow_with(executor) { 46 }.value(5)
    order = []
    serial = Concurrent::SerializedExecutionDelegator.new(executor)
    last = Concurrent::Event.new
    5.times do |i|
      serial.post do
        sleep(0.001)
        order << i
        last.set if i == 4
      end
    end
    assert last.wait(5)
    assert_equal [0, 1, 2, 3, 4], order
    agent = Concurrent::Agent.new(0)
    3.times { agent.send_via(executor) { |value| value + 1 } }
    assert agent.await_for(5)
    assert_equal 3, agent.value
  end

  private

  def executor = @executor ||= make

  def states = [executor.running?, executor.shuttingdown?, executor.shutdown?]

  # Fills the executor, of one block and one more that waits. In the end both have run, and nothing else.
  def fill(executor)
    gate, begun, done = Concurrent::Event.new, Concurrent::Event.new, Thread::Queue.new
    executor.post do
      begun.set
      gate.wait
      done << :first
    end
    assert begun.wait(5)
    executor.post { done << :second }
    yield done
    gate.set
    executor.shutdown
    assert executor.wait_for_termination(5)
    assert_equal %i[first second], Array.new(done.size) { done.pop }
  end
end

class ThreadPoolExecutorTest < Minitest::Test
  include ExecutorBehaviour

  mode :thread

  private

  def make(size = 10, **options)
    Concurrent::ThreadPoolExecutor.new(max_threads: size, **options).tap { |made| (@made ||= []) << made }
  end
end

class ExecutorTest < Minitest::Test
  include InterruptAtMoment
  include ExecutorBehaviour

  mode :fiber

  def test_many_wait_at_once_on_one_thread
    executor = make(1000)
    all = Concurrent::CountDownLatch.new(1000)
    threads = 1000.times.map do
      Concurrent::Promises.future_on(executor) do
        all.count_down
        all.wait
        Thread.current
      end
    end
    assert_equal 1, threads.map(&:value!).uniq.size
    assert_equal 1000, executor.largest_length
  end

  def test_never_more_than_its_fibers_on_all_its_threads
    executor = make(5, threads: 2)
    now, most = Concurrent::AtomicFixnum.new, Concurrent::AtomicFixnum.new
    futures = 40.times.map do
      Concurrent::Promises.future_on(executor) do
        current = now.increment
        most.update { |value| [value, current].max }
        sleep(0.005)
        now.decrement
        Thread.current
      end
    end
    threads = futures.map { |future| future.value!(5) }
    assert_equal 5, most.value
    assert_equal 2, threads.uniq.size
  end

  # The caller's deadline is the caller's: whoever waits for the future later did not set it.
  def test_a_block_inherits_nothing_of_its_caller
    seen = Thread::Queue.new
    look = lambda do
      seen << [Heddle.remaining, (Fiber[:heddle_test] if Fiber.respond_to?(:[])), Thread.pending_interrupt?,
        Thread.current[:heddle_test]]
    end
    Heddle.run do
      Thread.current[:heddle_test] = :local
      Fiber[:heddle_test] = :storage if Fiber.respond_to?(:[]=)
      Heddle.deadline(5) { 2.times { executor.post(&look) } }
    end
    2.times { assert_equal [nil, nil, false, nil], seen.pop }
  end

  def test_deadlines_and_waits_of_a_block
    executor = make(2)
    late = Concurrent::Promises.future_on(executor) { Heddle.deadline(0.02) { sleep } }
    assert_kind_of Heddle::DeadlineExceeded, late.reason(5)
    # Waits for a block of the same thread.
    outer = Concurrent::Promises.future_on(executor) { Concurrent::Promises.future_on(executor) { :inner }.value!(5) }
    assert_equal :inner, outer.value!(5)
  end

  def test_a_task_waits_for_a_future
    ticks = 0
    Heddle.run do
      ticker = Heddle.spawn { loop { sleep(0.002) && ticks += 1 } }
      ticked = Concurrent::Promises.future_on(executor) { (sleep(0.002) until ticks > 5) || :ticked }
      assert_equal :ticked, ticked.value!(5)
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.02) { Concurrent::Promises.future_on(executor) { sleep(0.2) }.value }
      end
      ticker.cancel
    end
  end

  def test_kill_runs_ensure_blocks_before_the_end
    ended = Thread::Queue.new
    begun = Concurrent::CountDownLatch.new(50)
    50.times do
      executor.post do
        begun.count_down
        sleep
      ensure
        sleep(0.01) # clean-up may wait
        ended << Thread.current
      end
    end
    wait_until { begun.count <= 40 }
    executor.kill
    assert executor.wait_for_termination(5)
    assert_equal 10, ended.size
  end

  def test_blocks_of_exit_and_of_kill_do_not_end_the_others
    executor.post { exit }
    executor.post { throw :nowhere }
    executor.post { raise Exception, "for the log" } # rubocop:disable Lint/RaiseException
    assert_equal :fine, Concurrent::Promises.future_on(executor) { :fine }.value!(5)
  end

  def test_its_thread_ends_when_idle_and_starts_again
    executor = make(5, idletime: 0.02)
    3.times do
      thread = Concurrent::Promises.future_on(executor) { Thread.current }.value!(5)
      assert thread.join(stretched(5)), "the idle thread ends"
    end
    assert_equal 3, executor.scheduled_task_count
    wait_until { executor.completed_task_count == 3 }
  end

  # Its thread is killed from outside: what ran is lost, what waits runs on another thread.
  def test_its_thread_is_killed
    executor = make(1)
    running = Thread::Queue.new
    ended = false
    executor.post do
      running << Thread.current
      sleep
    ensure
      ended = true
    end
    waiting = Concurrent::Promises.future_on(executor) { :ran }
    running.pop.kill
    assert_equal :ran, waiting.value!(5)
    assert ended
  end

  # The other thread is full, with a block that waits for the one in the queue.
  def test_one_of_its_threads_is_killed
    executor = make(2, threads: 2)
    running, gate, waiting = Array.new(3) { Thread::Queue.new }
    executor.post do
      running << :first
      gate.pop
      Thread.exit
    end
    assert_equal :first, running.pop
    other = Concurrent::Promises.future_on(executor) do
      running << :other
      waiting.pop
    end
    assert_equal :other, running.pop
    executor.post { waiting << :ran }
    gate << true
    assert_equal :ran, other.value!(stretched(5))
  end

  # It runs fewer blocks than the other thread, but one of them keeps it from its loop.
  def test_a_block_does_not_wait_for_a_thread_that_is_blocked
    executor = make(10, threads: 2)
    running = Thread::Queue.new
    reader, writer = IO.pipe
    executor.post do
      running << Thread.current
      Fiber.new(blocking: true) { reader.read(1) }.resume
    end
    blocked = running.pop
    2.times { executor.post { sleep if running << Thread.current } }
    2.times { refute_same blocked, running.pop }
    refute_same blocked, Concurrent::Promises.future_on(executor) { Thread.current }.value(stretched(5)) || blocked
  ensure
    writer&.close
  end

  def test_its_thread_is_interrupted_before_its_first_line
    %i[kill raise].each do |interrupt|
      executor = make(1, name: "#{interrupt} at once")
      executor.post {}
      Thread.list.find { |thread| thread.name == "#{interrupt} at once heddle executor" }.public_send(interrupt)
      assert_equal :ran, Concurrent::Promises.future_on(executor) { :ran }.value!(5), interrupt
      executor.shutdown
      assert executor.wait_for_termination(5), interrupt
    end
  end

  # What has not begun runs on another thread.
  def test_its_thread_is_killed_at_every_moment_between_the_queue_and_the_block
    moment = 0
    loop do
      executor = make(1, name: "killed")
      where = nil
      ran = killed_at(moment += 1, ->(place) { where = place }) do
        Concurrent::Promises.future_on(executor) { :ran }.value!(stretched(5))
      end
      assert_equal :ran, ran, "killed #{where}"
      wait_until(what: "the end of the block") { executor.length.zero? }
      break unless where
    end
    assert_operator moment, :>, 10
  end

  # Its thread ends, as without memory, between the look into the queue and the block's first line.
  def test_a_block_that_could_not_start_runs_on_another_thread
    executor = make(2)
    original, failures = Heddle.method(:spawn), 1
    Heddle.define_singleton_method(:spawn) do |**options, &block|
      raise NoMemoryError, "on purpose" if (failures -= 1) == 0

      original.call(**options, &block)
    end
    assert_equal :ran, Concurrent::Promises.future_on(executor) { :ran }.value!(5)
    assert_operator failures, :<, 0
  ensure
    Heddle.define_singleton_method(:spawn, original) if original
  end

  def test_a_child_of_fork_starts_anew
    gate = Concurrent::Event.new
    executor = make(1)
    executor.post { gate.wait }
    executor.post { gate.wait }
    stopped = make
    stopped.shutdown
    reader, writer = IO.pipe
    child = fork do
      fresh = [executor.length, executor.queue_length, executor.scheduled_task_count]
      value = Concurrent::Promises.future_on(executor) { :child }.value!(5)
      executor.shutdown
      writer.write(Marshal.dump([fresh, value, executor.wait_for_termination(5), stopped.shutdown?]))
      exit!(0)
    end
    writer.close
    assert_equal [[0, 0, 0], :child, true, true], Marshal.load(reader.read)
    Process.wait(child)
    assert_equal [1, 1], [executor.length, executor.queue_length]
    gate.set
  ensure
    reader&.close
  end

  def test_a_program_ends_beside_waiting_blocks
    program = <<~RUBY
      require "heddle/executor"
      executor = Heddle::Executor.new
      begun = Thread::Queue.new
      executor.post { begun << true; begin sleep; ensure puts "cleaned up" end }
      begun.pop
    RUBY
    load_path = $LOAD_PATH.flat_map { |folder| ["-I", folder] }
    assert_within(10) do
      assert_equal "cleaned up\n", IO.popen([RbConfig.ruby, *load_path, "-e", program], &:read)
    end
    assert_predicate $?, :success?
  end

  def test_posts_of_many_threads_while_the_collector_works
    executor = make(50)
    sum = Concurrent::AtomicFixnum.new
    latch = Concurrent::CountDownLatch.new(2000)
    posters = 4.times.map do
      Thread.new do
        500.times do |i|
          executor.post(i) do |value|
            sleep(0.0001) if value % 7 == 0
            sum.increment(value)
            latch.count_down
          end
          GC.start(full_mark: false) if i % 100 == 0
        end
      end
    end
    posters.each(&:join)
    assert latch.wait(10)
    assert_equal 4 * 499 * 250, sum.value
  end

  # A block runs once, or not at all if its post was interrupted before the executor accepted it; no place is lost.
  def test_a_poster_that_is_interrupted_at_every_moment
    moment = 0
    loop do
      executor = make(1, max_queue: 2)
      ran = Thread::Queue.new
      where = interrupted_at(moment += 1, %r{heddle/executor}) { executor.post { ran << :first } }
      Concurrent::Promises.future_on(executor) { ran << :last }.value!(5)
      assert_includes [%i[first last], %i[last]], Array.new(ran.size) { ran.pop }, "interrupted #{where}"
      assert_equal 2, executor.remaining_capacity
      executor.shutdown
      assert executor.wait_for_termination(5), "interrupted #{where}"
      break unless where
    end
    assert_operator moment, :>, 10
  end

  # The block runs although nobody posts another one, which would wake the thread.
  def test_a_poster_that_is_interrupted_as_it_wakes_the_thread
    moment = 0
    loop do
      executor = make(1)
      Concurrent::Promises.future_on(executor) { :first }.value!(5)
      wait_until { executor.completed_task_count == 1 }
      sleep 0.002 # the thread sleeps, too
      where = interrupted_at(moment += 1, %r{heddle/executor}) { executor.post {} }
      wait_until(5, what: "the block, interrupted #{where}") { executor.length.zero? }
      executor.shutdown
      assert executor.wait_for_termination(5), "interrupted #{where}"
      break unless where
    end
    assert_operator moment, :>, 10
  end

  def test_leaks_no_executor
    refs = Array.new(20) do
      made = Heddle::Executor.new(idletime: 0.01)
      made.post {}
      made.wait_for_termination(0.02)
      WeakRef.new(made)
    end
    wait_until(5) do
      GC.start
      refs.count(&:weakref_alive?) <= 5
    end
  end

  private

  # Kills the executor's thread before or after one of the lines that hand out work.
  def killed_at(moment, told, &block)
    seen = 0
    trace = TracePoint.new(:line, :return, :b_return) do |point|
      next unless %i[take start_tasks].include?(point.method_id) && point.path.include?("lib/heddle/")
      next unless Thread.current.name == "killed heddle executor" && (seen += 1) == moment

      told.call("#{File.basename(point.path)}:#{point.lineno} #{point.event}")
      Thread.current.kill
    end
    trace.enable(target_thread: nil, &block)
  end

  def make(size = 10, **options)
    Heddle::Executor.new(fibers: size, **options).tap { |made| (@made ||= []) << made }
  end
end

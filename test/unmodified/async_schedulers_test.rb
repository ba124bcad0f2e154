# frozen_string_literal: true

require "test_helper"
require "support/quiet_async"
require "async/notification"
require "stringio"

# What programs see of a scheduler that they make and set themselves: the same of Async's own and of Heddle's.
class AsyncSchedulersTest < Minitest::Test
  include QuietAsync

  mode :fiber

  def test_each_scheduler_has_its_kind
    Sync { |task| assert_same Fiber.scheduler, task.reactor }
    Sync { assert_kind_of Async::Reactor, Fiber.scheduler }
    Sync { assert_includes Heddle::Scheduler.backends, Fiber.scheduler.backend }
    AsyncLoops.run(:own) { assert_instance_of Async::Reactor, Fiber.scheduler }
    Heddle.run { assert_kind_of Async::Scheduler, Fiber.scheduler }
  end

  def test_names
    each_scheduler(Async::Scheduler) do |scheduler|
      assert_match(/\A#<Async::Scheduler:0x\h+ 0 children/, scheduler.to_s)
      scheduler.close
    end
    each_scheduler(Async::Reactor) do |reactor|
      task = reactor.async { sleep }
      reactor.print_hierarchy(out = StringIO.new, backtrace: false)
      assert_match(/\A#<Async::Reactor:0x\h+ 1 children .*\n\t#<Async::Task:/, out.string)
      task.stop
    ensure
      Fiber.set_scheduler(nil)
    end
  end

  def test_a_subclass_of_the_substitute_keeps_its_name
    parent = Async::Scheduler.new.tap(&:close).class
    refute_match(/Async::Scheduler/, Class.new(parent).to_s)
  end

  # Before the loop's first round there is no load, and only the rounds since the last question are added.
  def test_load
    each_scheduler(Async::Scheduler) do |scheduler|
      assert_in_delta 0, scheduler.load, 0
      scheduler.instance_variable_set(:@busy_time, 2.0)
      scheduler.instance_variable_set(:@idle_time, 2.0)
      assert_in_delta 0.5, scheduler.load, 0
      scheduler.close
    end
    AsyncLoops.run(:own) { assert_in_delta 0, Fiber.scheduler.load, 0 }
  end

  # A pending #interrupt ends the close before the tasks have ended.
  def test_close_with_a_pending_interrupt
    each_scheduler(Async::Reactor) do |reactor|
      ended = []
      reactor.async do
        sleep
      ensure
        ended << :ensure
      end
      reactor.interrupt
      assert_within(5) { Fiber.set_scheduler(nil) }
      assert_predicate reactor, :closed?
      assert_empty ended
    end
  end

  def test_close_with_a_pending_interrupt_ends_tasks_of_heddles
    reactor = Async::Reactor.new
    waiting = Heddle.spawn { sleep }
    reactor.interrupt
    assert_within(5) { Fiber.set_scheduler(nil) }
    assert_equal :cancelled, waiting.status
  end

  # The run goes on as if nothing had happened.
  def test_a_reactor_in_a_task_of_a_run
    value = Heddle.run do
      scheduler = Fiber.scheduler
      other = Heddle.spawn { sleep(0.01) && :other }
      assert_raises(ThreadError) { Async::Reactor.new }
      assert_raises(ThreadError) { Sync { Async::Reactor.new } }
      selector = IO::Event::Selector.new(Fiber.current)
      assert_raises(ThreadError) { Async::Reactor.new(selector: selector) }
      selector.close
      assert_same scheduler, Fiber.scheduler
      sleep(0.001)
      other.value
    end
    assert_equal :other, value
  end

  # The wait that has just ended counts with the next one.
  def test_load_right_after_a_wait
    AsyncLoops::ALL.each do |loop|
      AsyncLoops.run(loop) do
        began = monotonic
        sleep(0.02)
        assert_in_delta 0, Fiber.scheduler.load, 0, loop unless loop == :run # whose main task has waited before
        slept = monotonic - began
        nil until monotonic - began > 3 * slept
        sleep(5 * slept)
        assert_operator Fiber.scheduler.load, :>, 0.5, loop
      end
    end
  end

  def test_a_task_that_sleeps_is_no_load
    AsyncLoops::ALL.each do |loop|
      AsyncLoops.run(loop) do
        wait_until(what: "a low load of #{loop}") { sleep(0.02) && Fiber.scheduler.load < 0.3 }
      end
    end
  end

  # A scheduler is closed with its thread's error in $!, which no `rescue` on the way may lose.
  def test_the_error_that_ends_a_thread
    [Async::Scheduler, Async::Reactor].each do |klass|
      [false, true].each do |transient|
        errors = errors_of_threads(klass) do |scheduler|
          Fiber.set_scheduler(scheduler) unless Fiber.scheduler # a reactor sets itself
          scheduler.async(transient: transient) { sleep }
          raise IOError, "the thread's own"
        end
        assert_equal ["the thread's own"] * 2, errors
      end
    end
  end

  def test_the_error_in_force_outlives_a_raise_in_another_fiber
    Thread.new do
      Thread.current.report_on_exception = false
      Fiber.set_scheduler(Heddle::Scheduler.new)
      fiber = Fiber.schedule do
        sleep
      rescue ArgumentError
        nil
      end
      begin
        raise IOError, "outer"
      ensure
        fiber.raise(ArgumentError)
        assert_equal "outer", $!.message
      end
    end.join
    flunk "the thread's error is lost"
  rescue IOError => error
    assert_equal "outer", error.message
  end

  # What one round makes ready by #push has its turn in that round: programs count rounds in their tests.
  def test_a_round_runs_what_is_pushed
    rounds = []
    each_scheduler(Async::Reactor) do |reactor|
      notification = Async::Notification.new
      waiter = reactor.async { notification.wait }
      reactor.run_once(0)
      reactor.async { notification.signal }
      assert_predicate waiter, :running?
      rounds << (1..10).find { reactor.run_once(0) && waiter.completed? }
    ensure
      Fiber.set_scheduler(nil)
    end
    own, ours = rounds
    assert_operator ours, :<=, own
  end

  # What a task does not keep, and what an object that was pushed raises, leaves the loop before other tasks go on.
  def test_errors_that_leave_the_loop
    pushed = Struct.new(:alive?) { def transfer = raise(IOError, "pushed") }.new(true)
    starts = {
      NotImplementedError => ->(task) { task.async { task.yield || raise(NotImplementedError) } },
      SystemExit => ->(task) { task.async { task.yield || exit } },
      IOError => ->(_) { Fiber.scheduler.push(pushed) }
    }
    starts.each do |error, start|
      records = (AsyncLoops::ALL - [:run]).map do |loop| # Heddle.run cancels its tasks, and waits for them
        log = []
        turns = ->(name) { 5.times { |i| log << [name, i] && Async::Task.current.yield } }
        assert_raises(error, loop.to_s) do
          AsyncLoops.run(loop) do |task|
            task.async { turns.call(:before) }
            start.call(task)
            task.async { turns.call(:after) }
            turns.call(:root)
          end
        end
        log
      end
      assert_equal 1, records.uniq.size, "#{error}: #{records}"
    end
  end

  # The code that runs the loop goes on as soon as the task that it has started or stopped waits or ends.
  def test_code_outside_of_tasks_goes_on_before_ready_tasks
    records = []
    each_scheduler(Async::Reactor) do |reactor|
      records << []
      reactor.async { 3.times { |i| records.last << [:one, i] && reactor.yield } }
      records.last << :root
      reactor.async { records.last << :two }
      records.last << :root_again
      sleeping = reactor.async { sleep }
      sleeping.stop
      records.last << :stopped
      reactor.run
    ensure
      Fiber.set_scheduler(nil)
    end
    assert_equal(*records)
  end

  # A fiber outside of all tasks that waits for ever gives the thread back to the fiber that made the scheduler.
  def test_closing_with_a_blocked_fiber
    each_scheduler(Async::Scheduler) do |scheduler|
      trail = []
      fiber = Fiber.new do
        trail << :waits
        scheduler.block(:test, nil)
        trail << :goes_on
      end
      fiber.transfer
      assert_equal %i[waits], trail
      error = assert_raises(RuntimeError) { scheduler.close }
      assert_match(/blocked operations/, error.message)
      assert_predicate scheduler, :closed?
    end
  end

  def test_a_blocked_fiber_outside_of_tasks_can_go_on
    each_scheduler(Async::Scheduler) do |scheduler|
      trail = []
      Fiber.set_scheduler(scheduler)
      fiber = Fiber.new do
        scheduler.block(:test, nil)
        trail << :on
      end
      fiber.transfer
      scheduler.unblock(:test, fiber)
      scheduler.run { sleep(0.001) && trail << :task }
      assert_equal %i[on task], trail
    ensure
      Fiber.set_scheduler(nil)
    end
  end

  # Async raises where Ruby returns nil.
  def test_the_timeout_of_an_io
    skip "IO#timeout is of Ruby 3.2" unless IO.method_defined?(:timeout)

    AsyncLoops::ALL.each do |loop|
      IO.pipe do |reader, _writer|
        reader.timeout = 0.001
        AsyncLoops.run(loop) do
          assert_raises(IO::TimeoutError, loop.to_s) { reader.wait_readable }
          assert_nil reader.wait_readable(0.001)
        end
      end
    end
  end

  def test_the_timeout_of_an_io_in_a_task_of_heddles
    skip "Ruby 3.4 returns nil" if RUBY_VERSION < "3.4"

    IO.pipe do |reader, _writer|
      reader.timeout = 0.001
      assert_nil(Heddle.run { reader.wait_readable })
    end
  end

  def test_subclasses_of_a_program
    mine = Class.new(Async::Scheduler) { def initialize(name, **options) = (@name = name) && super(nil, **options) }
    scheduler = mine.new("mine")
    assert_instance_of mine, scheduler
    refute_respond_to scheduler, :backend
  ensure
    scheduler&.close
  end

  def test_a_scheduler_by_hand
    scheduler = Async::Scheduler.new
    Fiber.set_scheduler(scheduler)
    sleeping = scheduler.async { sleep }
    assert_within(2) { assert scheduler.run_once(0.001) }
    assert_within(2) { assert scheduler.run_once(0) }
    assert_predicate sleeping, :running?
    refute_predicate scheduler, :closed?
    sleeping.stop
    scheduler.run
    refute scheduler.run_once(0)
    events = []
    Fiber.schedule { events << Async::Task.current?.class }
    assert_equal [Async::Task], events
  ensure
    Fiber.set_scheduler(nil)
    assert_predicate scheduler, :closed?
    assert_raises(Async::Scheduler::ClosedError) { scheduler.run }
    assert_raises(Async::Scheduler::ClosedError) { scheduler.async {} }
  end

  def test_a_task_that_becomes_transient_lets_the_loop_end
    assert_within(5, remeasure: 0) do
      Async do |task|
        top = Async::Task.run(Fiber.scheduler) { sleep }
        task.async { sleep(0.002) && top.transient = true }
      end
    end
  end

  def test_transfer_and_resume_with_a_value
    on_heddle do |task|
      got = nil
      child = task.async { got = Fiber.scheduler.transfer }
      Fiber.scheduler.resume(child.fiber, :value)
      assert_equal :value, got
      pushed = task.async { Fiber.scheduler.transfer }
      Fiber.scheduler.push(pushed.fiber)
      pushed.wait
      plain = Fiber.new { sleep(0.001) && got = :plain }
      Fiber.scheduler.resume(plain)
      wait_until { got == :plain }
    end
  end

  def test_fibers_of_the_program_get_all_that_transfer_passes
    assert_equal [1, 2, 3], Fiber.new { |one, two = 2, three:| [one, two, three] }.transfer(1, three: 3)
  end

  private

  def each_scheduler(klass)
    yield klass.new(selector: IO::Event::Selector.new(Fiber.current))
    yield klass.new
  end

  def errors_of_threads(klass)
    [true, false].map do |own|
      thread = Thread.new do
        Thread.current.report_on_exception = false
        yield klass.new(selector: own ? IO::Event::Selector.new(Fiber.current) : nil)
      end
      thread.join && nil
    rescue IOError => error
      error.message
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/quiet_async"
require "async/notification"
require "stringio"

# What programs see of a scheduler that they make and set themselves: the same of Async's own and of Heddle's.
class AsyncSchedulersTest < Minitest::Test
  include QuietAsync

  mode :fiber

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
    AsyncLoops::ALL.first(2).each { |loop| AsyncLoops.run(loop) { assert_in_delta 0, Fiber.scheduler.load, 0 } }
  end

  def test_a_task_that_sleeps_is_no_load
    AsyncLoops::ALL.each do |loop|
      AsyncLoops.run(loop) do
        sleep(0.3)
        assert_operator Fiber.scheduler.load, :<, 0.3, loop
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

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "json"

# Ruby's own way to a scheduler: Fiber.set_scheduler and Fiber.schedule, without Heddle.run.
class PlainSchedulerTest < Minitest::Test
  include LoopHelpers

  def test_scheduled_fibers_run_to_their_end_when_the_thread_ends
    ended = []
    Thread.new do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      3.times { |index| Fiber.schedule { sleep(0.01 * (3 - index)) && ended << index } }
      ended << :thread_block
    end.join
    assert_equal [:thread_block, 2, 1, 0], ended
  end

  def test_scheduled_fibers_run_to_their_end_when_the_program_ends
    assert_equal "0\n1\n2\n", assert_child(<<~RUBY)
      Fiber.set_scheduler(Heddle::Scheduler.new)
      3.times { |index| Fiber.schedule { sleep(0.01 * index); puts index } }
    RUBY
  end

  def test_scheduled_fibers_run_to_their_end_when_the_scheduler_is_unset
    ended = []
    in_thread do
      scheduler = Heddle::Scheduler.new
      Fiber.set_scheduler(scheduler)
      Fiber.schedule { sleep(0.01) && ended << 1 }
      Fiber.set_scheduler(nil)
      assert_equal [1], ended
      assert_predicate scheduler, :closed?
    end
  end

  def test_require_of_the_scheduler_alone
    out = assert_child(<<~RUBY, launcher: [])
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.schedule { puts Fiber.scheduler.backend }
    RUBY
    assert_includes Heddle::Scheduler.backends, out.strip
    script = <<~RUBY
      require "heddle/scheduler"
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.schedule { sleep 0.001; puts :slept }
    RUBY
    assert_equal "slept\n", IO.popen([RbConfig.ruby, "-I#{ROOT}/lib", "-e", script], &:read)
  end

  def test_a_scheduler_made_on_another_thread_than_it_is_set_on
    scheduler = Heddle::Scheduler.new
    ended = in_thread do
      Fiber.set_scheduler(scheduler)
      ended = []
      Fiber.schedule { sleep(0.001) && ended << 1 }
      Fiber.set_scheduler(nil)
      ended
    end
    assert_equal [1], ended
  end

  def test_run_inside
    values = in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      values = []
      Fiber.schedule { values << Heddle.run { Heddle.spawn { sleep(0.001) && :task }.value } }
      values << Heddle.run { :from_the_root }
      Fiber.set_scheduler(nil)
      values
    end
    assert_equal %i[task from_the_root], values.sort_by { |value| (value == :task) ? 0 : 1 }
  end

  def test_spawn_without_a_run
    ended = in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      ended = []
      task = Heddle.spawn { sleep(0.01) && ended << 1 }
      assert_equal :waiting, task.status
      Fiber.set_scheduler(nil)
      assert_equal :completed, task.status
      ended
    end
    assert_equal [1], ended
  end

  # The root fiber is blocking: Ruby's own waits stop the thread there, Heddle's run the loop.
  def test_a_value_read_in_the_root_fiber
    value = in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Heddle.spawn { sleep(0.001) && :value }.value
    end
    assert_equal :value, value
  end

  # An error that nothing waits for is printed before the task has ended: the print may wait, and be cancelled.
  def test_a_cancel_and_a_kill_while_an_error_is_reported
    ways = {cancel: ->(task, _) { task.cancel }}
    ways[:kill] = ->(_, fiber) { fiber.kill } if Fiber.method_defined?(:kill)
    ways.each do |way, interrupt|
      entered = Thread::Queue.new
      slow = Object.new
      slow.define_singleton_method(:write) { |_| entered.push(true) && sleep }
      stderr, $stderr = $stderr, slow
      ended = []
      in_thread do
        Fiber.set_scheduler(Heddle::Scheduler.new)
        Thread.current.report_on_exception = true
        task = fiber = nil
        Fiber.schedule do
          task = Heddle.spawn { (fiber = Fiber.current) && sleep(0) && raise(IOError) }
          entered.pop
          interrupt.call(task, fiber)
          ended << :interrupter
        end
        Fiber.set_scheduler(nil)
        assert_instance_of IOError, task.error, way
      end
      assert_equal [:interrupter], ended, way
    ensure
      $stderr = stderr
    end
  end

  def test_an_error_in_a_scheduled_fiber_is_reported_and_the_others_continue
    ended = []
    report = stderr_of do
      in_thread do
        Fiber.set_scheduler(Heddle::Scheduler.new)
        Thread.current.report_on_exception = true
        Fiber.schedule { sleep(0.01) && ended << 1 }
        Fiber.schedule { raise IOError, "in a fiber" }
        Fiber.set_scheduler(nil)
      end
    end
    assert_includes report, "in a fiber"
    assert_equal [1], ended
  end

  def test_fiber_schedule_always_gets_a_fresh_fiber
    in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      fibers = Array.new(5) { Fiber.schedule {} }
      assert_equal 5, fibers.uniq.size
      assert fibers.none?(&:alive?)
    end
  end

  def test_fiber_schedule_returns_the_fiber_that_runs
    in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      inside = nil
      fiber = Fiber.schedule { (inside = Fiber.current) && sleep(0.001) }
      assert_same inside, fiber
      refute_predicate fiber, :blocking?
      assert_predicate fiber, :alive?
    end
  end

  # With the timeout that comes with this Ruby.
  def test_a_client_that_tries_again_ends_with_its_timeout
    {"Timeout.timeout(0.02)" => [0, "Timeout::Error: execution expired"],
     "Object.new.extend(Timeout).send(:timeout, 0.02)" => [0, "Timeout::Error: execution expired"],
     "Timeout.timeout(0.02, nil, 'late')" => [0, "Timeout::Error: late"],
     "Timeout.timeout(0.02, Timeout::Error)" => [1, "slept"]}.each do |call, expected|
      out = assert_child(<<~RUBY)
        require "timeout"
        Fiber.set_scheduler(Heddle::Scheduler.new)
        Fiber.schedule do
          tries = 0
          ended =
            begin
              #{call} do
                sleep(0.1) && "slept"
              rescue Timeout::Error
                (tries += 1) < 5 ? retry : "gave up"
              end
            rescue Timeout::Error => error
              "\#{error.class}: \#{error.message}"
            end
          p [tries, ended]
        end
      RUBY
      assert_equal expected, JSON.parse(out), call
    end
  end

  def test_close_twice_and_use_after_close
    scheduler = Heddle::Scheduler.new
    in_thread do
      Fiber.set_scheduler(scheduler)
      Fiber.schedule { sleep(0.001) }
      Fiber.set_scheduler(nil)
    end
    assert_nil scheduler.close
    assert_nil scheduler.close
    error = assert_raises(Heddle::SchedulerClosed) { scheduler.kernel_sleep(0.01) }
    assert_includes error.message, "Heddle::Scheduler.new"
  end

  def test_a_task_cannot_close_the_scheduler_that_runs_it
    Heddle.run do
      error = assert_raises(ThreadError) { Fiber.scheduler.close }
      assert_includes error.message, "cannot close"
      assert_equal 1, Heddle.spawn { sleep(0.001) && 1 }.value
    end
  end

  # At the end of the thread Ruby waits for what is scheduled, and an interrupt cancels it.
  def test_thread_raise_while_scheduled_fibers_are_awaited
    ensured = []
    thread = Thread.new do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      3.times do |index|
        Fiber.schedule do
          sleep
        ensure
          sleep(0.001)
          ensured << index
        end
      end
      Fiber.scheduler.close
    end
    thread.report_on_exception = false
    wait_until { thread.status == "sleep" }
    thread.raise(IOError, "from outside")
    assert_equal "from outside", assert_raises(IOError) { thread.value }.message
    assert_equal [0, 1, 2], ensured.sort
  end

  def test_system_exit_in_a_scheduled_fiber_is_raised_from_close
    ended = []
    in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.schedule { sleep(0.002) && ended << 1 }
      Fiber.schedule { sleep(0.001) && exit(7) }
      assert_equal 7, assert_raises(SystemExit) { Fiber.set_scheduler(nil) }.status
    end
    assert_equal [1], ended
  end

  def test_a_scheduler_that_is_never_set_costs_no_descriptor
    before = descriptor_count
    made = Array.new(100) { Heddle::Scheduler.new }
    assert_operator descriptor_count, :<=, before
    assert_equal 100, made.size
  end

  def test_use_from_another_thread
    Heddle.run do
      scheduler = Fiber.scheduler
      error = assert_raises(Heddle::WrongThread) {
        Thread.new { scheduler.kernel_sleep(0) }.tap { |t| t.report_on_exception = false }.value
      }
      assert_includes error.message, "FiberPool"
    end
  end

  def test_a_lost_scheduler_with_parked_fibers_is_collected
    out = assert_child(<<~RUBY)
      200.times do
        Thread.new do
          scheduler = Heddle::Scheduler.new
          Fiber.set_scheduler(scheduler)
          task = Heddle.spawn { sleep }
          task.cancel
        end.join
      end
      GC.start
      puts Dir.children("/proc/self/fd").size < 50
    RUBY
    assert_equal "true\n", out
  end
end

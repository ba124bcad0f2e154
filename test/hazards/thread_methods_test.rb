# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Thread.pass and Thread.stop in a task mean the task, not the thread that all tasks share.
class ThreadMethodsTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  def test_pass_gives_the_turn_to_the_other_tasks
    Heddle.run do
      turns = []
      tasks = [:left, :right].map { |name| Heddle.spawn { 3.times { (turns << name) && Thread.pass } } }
      tasks.each(&:value)
      assert_equal [:left, :right] * 3, turns
    end
  end

  def test_waiting_for_another_task_by_passing
    Heddle.run do
      over = false
      Heddle.spawn { sleep(0.01) && over = true }
      Heddle.deadline(10) { Thread.pass until over }
      assert over
    end
  end

  def test_pass_lets_other_threads_run
    count = 0
    over = false
    thread = Thread.new { (count += 1) && Thread.pass until over }
    Heddle.run { wait_until { Thread.pass || count > 10 } }
  ensure
    over = true
    thread.join
  end

  # Thread#raise makes its exception first: the other tasks run meanwhile, and are not interrupted.
  class MadeSlowly < StandardError
    def self.exception(*)
      Heddle.spawn { sleep(0.001) }.wait if Heddle::Task.current
      super
    end
  end

  def test_thread_raise_of_an_exception_whose_constructor_waits
    Heddle.run do
      others = Array.new(5) { Heddle.spawn { 10.times { sleep(0.001) } && :fine } }
      interrupter = Heddle.spawn do
        Thread.current.raise(MadeSlowly, "interrupted")
      rescue MadeSlowly => error
        error.message
      end
      assert_equal ["interrupted", *[:fine] * 5], [interrupter, *others].map(&:value)
    end
  end

  # Ruby's masks belong to the thread, not to the fiber, as doc/limits.md says. When this test fails, that section can
  # go.
  def test_a_mask_of_one_task_holds_for_the_others
    Heddle.run do
      gate = Thread::Queue.new
      masked = Heddle.spawn do
        Thread.handle_interrupt(KeyError => :never) { gate.pop }
      rescue KeyError
        :interrupted
      end
      interrupter = Heddle.spawn { Thread.current.raise(KeyError) || :went_on }
      gate << :fine
      assert_equal %i[interrupted went_on], [masked, interrupter].map(&:value)
    end
  end

  def test_threads_and_children_that_a_task_starts_beside_a_mask_keep_it
    out = assert_child(<<~'RUBY', timeout: 20)
      unmasked = ->(&work) { Thread.handle_interrupt(Object => :immediate, &work) }
      ends = lambda do |wrap = ->(&work) { work.call }|
        Thread.new { wrap.call { (Heddle.deadline(0.01) { sleep(0.3) } && :late) rescue :in_time } }.value
      end
      Heddle.run do
        gate = Thread::Queue.new
        Heddle.spawn { Thread.handle_interrupt(Exception => :never) { gate.pop } }
        sleep(0) until gate.num_waiting == 1
        Process.wait(fork { puts("#{ends.call} #{ends.call(unmasked)}") || $stdout.flush && exit!(0) })
        puts "#{ends.call} #{ends.call(unmasked)}"
        gate << 1
      end
    RUBY
    assert_equal "late in_time\n" * 2, out
  end

  def test_a_mask_holds_a_deadline_back_in_a_plain_thread_and_not_in_a_task
    steps = []
    masked = lambda do
      Heddle.deadline(0.02) do
        Thread.handle_interrupt(Exception => :never) do
          sleep(0.2)
          steps << :slept
        end
      end
    end
    thread = Thread.new { masked.call }
    thread.report_on_exception = false
    assert_raises(Heddle::DeadlineExceeded) { thread.value }
    assert_equal [:slept], steps
    assert_raises(Heddle::DeadlineExceeded) { Heddle.run(&masked) }
    assert_equal [:slept], steps
  end

  def test_stop_raises_an_error_that_says_what_to_do
    Heddle.run do
      error = assert_raises(ThreadError) { Thread.stop }
      assert_match(/Queue/, error.message)
      went_on = false
      Heddle.spawn { sleep(0) && went_on = true }.wait
      assert went_on
    end
  end

  def test_threads_without_a_scheduler_stop_and_pass_as_before
    stopped = Thread.new { Thread.stop && :woken }
    wait_until { stopped.stop? }
    assert_equal :woken, stopped.wakeup.value || :woken
    assert_nil Thread.pass
  end
end

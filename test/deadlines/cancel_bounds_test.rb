# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Cancellation under shields and deadlines, and tasks that refuse to end.
class CancelBoundsTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  def test_a_cancel_inside_a_shield_waits_for_its_end
    steps = []
    Heddle.run do
      task = Heddle.spawn do
        Heddle.shield(20) { 3.times { |index| sleep(0.01) && steps << index } }
        sleep(20)
        steps << :not_reached
      end
      task.cancel
      assert_equal [], steps
      task.wait
      assert_equal [[0, 1, 2], :cancelled], [steps, task.status]
    end
  end

  def test_a_shield_bounds_how_long_a_cancel_is_held_up
    Heddle.run do
      task = Heddle.spawn { Heddle.shield(0.03) { sleep(20) } }
      assert_within(1, remeasure: 0) { task.cancel.wait }
      assert_raises(Heddle::DeadlineExceeded) { task.value }
    end
  end

  def test_a_wait_in_a_shield_is_not_cut_short_by_a_cancel_or_a_deadline
    queue = Thread::Queue.new
    got = nil
    Heddle.run do
      task = Heddle.deadline(0.02) do
        Heddle.spawn do
          started = monotonic
          Heddle.shield(20) { got = [sleep(0.1) && monotonic - started, queue.pop] }
          sleep(20)
        end
      end
      task.cancel
      sleep(0.15)
      queue << :item
      task.wait
      assert_equal :cancelled, task.status
    end
    assert_operator got.first, :>=, 0.1
    assert_equal :item, got.last
  end

  def test_deadline_and_cancel_at_once
    Heddle.run do
      task = Heddle.spawn do
        Heddle.deadline(0) do
          Heddle::Task.current.instance_variable_set(:@running, true)
          busy_until = monotonic + 0.005
          nil while monotonic < busy_until
          Heddle.shield(1) { sleep(0.005) }
          sleep(20)
        end
      end
      task.cancel.wait
      assert_equal :cancelled, task.status
    end
  end

  def test_a_task_cancelled_after_its_deadline_still_cleans_up_in_a_shield
    cleaned = []
    stderr_of do
      Heddle.run { end_a_thousand(cleaned) }
    end
    assert_equal 1000, cleaned.size
  end

  # It takes the cancellation for one more error after which to retry.
  def test_a_task_that_refuses_to_end_is_abandoned
    cancelled = 0
    warning = stderr_of do
      error = assert_within(5, at_least: 0.1) do
        cancelled = 0
        assert_raises(IOError) do
          Heddle.run(grace: 0.05) do
            Heddle.spawn(name: "stubborn") do
              sleep
            rescue Heddle::Cancellation
              cancelled += 1
              retry
            end
            raise IOError, "the block's own"
          end
        end
      end
      assert_equal "the block's own", error.message
    end
    assert_equal 3, cancelled
    assert_includes warning, "stubborn"
    assert_includes warning, "refuses to end"
    assert_match(/cancel_bounds_test.rb:\d+/, warning)
  end

  # Ruby's list of those who wait for the Queue still has it: a push reads the stack of its fiber.
  def test_a_task_that_was_given_up_is_not_collected
    assert_child(<<~RUBY)
      $stderr.reopen(File::NULL)
      queue = Thread::Queue.new
      def deep(depth, &block) = depth.zero? ? block.call : deep(depth - 1, &block)
      Thread.new do
        deep(40) do
          Heddle.run(grace: 0.01) do
            20.times do
              Heddle.spawn do
                queue.pop
              rescue Heddle::Cancellation
                retry
              end
            end
            raise IOError
          end
        rescue IOError
          puts "given up"
        end
        deep(60) { 1 } # over what the stack still holds
        sleep
      end
      Thread.pass until queue.num_waiting == 20
      sleep(0.2)
      4.times { GC.start }
      fibers = Array.new(60) { Fiber.new { deep(20) { Fiber.yield } }.tap(&:resume) } # on the stacks of freed ones
      30.times { queue << 1 }
      exit!(fibers.size == 60 ? 0 : 1)
    RUBY
  end

  def test_a_second_cancel_ends_a_clean_up_that_hangs
    steps = []
    warning = stderr_of do
      assert_raises(IOError) do
        Heddle.run(grace: 0.05) do
          Heddle.spawn do
            sleep
          ensure
            begin
              sleep
            ensure
              steps << :ended
            end
          end
          raise IOError
        end
      end
    end
    assert_equal [[:ended], ""], [steps, warning]
  end

  def test_a_shield_is_not_held_against_a_task
    steps = []
    warning = stderr_of do
      assert_raises(IOError) do
        Heddle.run(grace: 0.02) do
          Heddle.spawn do
            sleep
          ensure
            Heddle.shield(20) { sleep(0.3) }
            steps << :cleaned
          end
          raise IOError
        end
      end
    end
    assert_equal [[:cleaned], ""], [steps, warning]
  end

  def test_an_abandoned_task_does_not_harm_an_outer_run
    steps = []
    stderr_of do
      Heddle.run do
        assert_raises(IOError) do
          Heddle.run(grace: 0.02) do
            Heddle.spawn do
              Heddle.shield(0.2) { sleep }
            rescue Heddle::Cancellation, Heddle::DeadlineExceeded
              steps << :caught
              4.times do
                sleep(0.1)
              rescue Heddle::Cancellation
                steps << :cancelled
              end
              steps << :ended
            end
            raise IOError
          end
        end
        sleep(0.001)
        assert_nil Heddle::Task.current.error
      end
    end
    assert_includes steps, :cancelled
  end

  def test_an_interrupt_while_the_tasks_clean_up
    out = assert_child(<<~RUBY)
      begin
        Heddle.run do
          Heddle.spawn do
            sleep
          ensure
            begin
              puts "cleaning"
              sleep
            ensure
              puts "again"
            end
          end
          Thread.new(Thread.main) { |main| sleep 0.3; main.raise(Interrupt, "second") }
          raise IOError
        end
      rescue Interrupt => error
        puts error.message
      end
    RUBY
    assert_equal %w[cleaning again second], out.split
  end

  def test_a_scheduler_closed_by_an_interrupt_abandons_such_tasks_too
    out = in_child(<<~RUBY, timeout: 40)
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.schedule do
        sleep
      rescue Heddle::Cancellation
        retry
      end
      Thread.new(Thread.main) { |main| sleep 0.2; 4.times { main.raise(Interrupt); sleep 0.1 } }
      begin
        Fiber.set_scheduler(nil)
      rescue Interrupt
        puts "interrupted"
      end
    RUBY
    assert_includes out.out, "interrupted"
    assert_includes out.err, "refuses to end"
  end

  private

  def end_a_thousand(cleaned)
    tasks = Array.new(1000) do |index|
      Heddle.spawn do
        Heddle.deadline(index.even? ? 20 : 0.05) { sleep }
      ensure
        Heddle.shield(20) { sleep(0.001) }
        cleaned << index
      end
    end
    tasks.each_with_index { |task, index| task.cancel if index.even? }
    tasks.each(&:wait)
    assert_equal %i[cancelled failed] * 500, tasks.map(&:status)
    tasks.each { |task| assert_raises(Heddle::TaskCancelled, Heddle::DeadlineExceeded) { task.value } }
  end
end

# frozen_string_literal: true

require "support/loop_helpers"
require "timeout"

# What Heddle.deadline and Heddle.shield do, in tasks and in plain threads. The including class defines #inside, which
# calls a block there and returns its value or raises its error.
module Shared
  module Deadlines
    include LoopHelpers

    EXCEEDED = Heddle::DeadlineExceeded

    def test_a_block_in_time_returns_its_value
      inside do
        assert_equal :value, Heddle.deadline(10) { sleep(0.001) && :value }
        assert_equal :value, Heddle.deadline(nil) { sleep(0.001) && :value }
        assert_equal :value, Heddle.deadline(Float::INFINITY) { :value }
        assert_equal :value, Heddle.deadline(10r) { :value }
        assert_nil Heddle.remaining
      end
    end

    def test_every_kind_of_wait_fails
      with_pair do |reader, _|
        locked = Thread::Mutex.new
        holder = Thread.new { locked.synchronize { sleep } }
        wait_until { locked.locked? }
        condition, held = Thread::ConditionVariable.new, Thread::Mutex.new
        {
          sleep: -> { sleep }, timed_sleep: -> { sleep(20) }, read: -> { reader.read(1) }, gets: -> { reader.gets },
          wait: -> { reader.wait_readable(20) }, select: -> { IO.select([reader]) },
          queue: -> { Thread::Queue.new.pop },
          mutex: -> { locked.lock }, condition: -> { held.synchronize { condition.wait(held) } },
          join: -> { holder.join }, process: -> { system("exec sleep 0.5") }, nested: -> { Fiber.new { sleep }.resume },
          many: -> { loop { sleep(0.001) } }
        }.each do |name, wait|
          assert_within(0.4, at_least: 0.02) do
            error = assert_raises(EXCEEDED, name.to_s) { inside { Heddle.deadline(0.02) { wait.call } } }
            assert_kind_of Timeout::Error, error
            assert_kind_of Heddle::Error, error
          end
        end
      ensure
        holder&.kill&.join
      end
    end

    # The time of its tasks ends together with its own. Code that rescues their error must not hide that.
    def test_a_deadline_that_has_ended_a_task
      {
        value: -> { Heddle.run { Heddle.spawn { sleep }.value } }, run: -> { Heddle.run { sleep } },
        map: -> { Heddle.map(1..3) { sleep } }, task_of_task: -> { Heddle.map([1]) { Heddle.map([1]) { sleep } } },
        error_of_a_library: -> { Heddle.map([1]) { wait_of_a_library } }
      }.each do |name, wait|
        [->(error) { raise error }, ->(_) { :rescued }].each do |rescuing|
          error = assert_raises(EXCEEDED, name.to_s) do
            inside do
              Heddle.deadline(0.02) do
                wait.call
              rescue => error
                rescuing.call(error)
              end
            end
          end
          assert_includes error.message, "Heddle.deadline(0.02)"
        end
      end
    end

    def test_a_tasks_own_deadline_is_not_the_blocks
      assert_equal :rescued, inside {
        Heddle.deadline(20) do
          Heddle.map([1]) { Heddle.deadline(0.02) { sleep } }
        rescue EXCEEDED
          :rescued
        end
      }
    end

    def test_the_message_names_the_limit
      assert_includes assert_raises(EXCEEDED) { inside { Heddle.deadline(0.015) { sleep } } }.message,
        "Heddle.deadline(0.015)"
      assert_includes assert_raises(EXCEEDED) { inside { Heddle.shield(0.015) { sleep } } }.message,
        "Heddle.shield(0.015)"
    end

    def test_later_waits_fail_at_once
      tries = 0
      assert_within(1) do
        tries = 0
        assert_raises(EXCEEDED) do
          inside do
            Heddle.deadline(0.02) do
              sleep(20)
            rescue Timeout::Error
              retry if (tries += 1) < 10
              :gave_up
            end
          end
        end
      end
      assert_equal 10, tries
    end

    def test_waits_in_ensure_after_the_deadline_fail
      reached = []
      assert_within(1) do
        assert_raises(EXCEEDED) do
          inside do
            Heddle.deadline(0.02) do
              sleep(20)
            ensure
              reached << :ensure
              sleep(20)
              reached << :after_the_wait
            end
          end
        end
      end
      assert_equal [:ensure], reached.uniq
    end

    def test_a_shield_gives_clean_up_its_own_time
      steps = []
      assert_raises(EXCEEDED) do
        inside do
          Heddle.deadline(0.02) do
            sleep
          ensure
            Heddle.shield(10) do
              3.times { |index| sleep(0.03) && steps << index }
            end
          end
        end
      end
      assert_equal [0, 1, 2], steps
    end

    def test_a_shield_is_bounded
      error = assert_within(1.5, at_least: 0.05) do
        assert_raises(EXCEEDED) do
          inside do
            Heddle.deadline(0.02) do
              sleep
            ensure
              Heddle.shield(0.03) { sleep(20) }
            end
          end
        end
      end
      assert_includes error.message, "Heddle.deadline(0.02)"
      assert_includes error.cause.message, "Heddle.shield(0.03)"
    end

    def test_a_shield_that_begins_before_the_deadline
      steps = []
      assert_raises(EXCEEDED) do
        inside do
          Heddle.deadline(0.02) do
            Heddle.shield(10) { sleep(0.05) && steps << :shielded }
            sleep(20)
            steps << :after_the_wait
          end
        end
      end
      assert_equal [:shielded], steps
    end

    def test_of_nested_deadlines_the_earlier_wins
      error = assert_within(1) {
        assert_raises(EXCEEDED) { inside { Heddle.deadline(10) { Heddle.deadline(0.02) { sleep } } } }
      }
      assert_includes error.message, "deadline(0.02)"
      error = assert_within(1) {
        assert_raises(EXCEEDED) { inside { Heddle.deadline(0.02) { Heddle.deadline(10) { sleep } } } }
      }
      assert_includes error.message, "deadline(0.02)"
    end

    def test_the_inner_deadline_can_be_rescued_outside_of_its_block
      inside do
        result = Heddle.deadline(10) do
          Heddle.deadline(0.02) { sleep }
        rescue EXCEEDED
          sleep(0.001)
          :went_on
        end
        assert_equal :went_on, result
      end
    end

    def test_an_error_that_leaves_late_is_converted
      error = assert_raises(EXCEEDED) { inside { fail_late } }
      assert_equal [IOError, "a client's own"], [error.cause.class, error.cause.message]
    end

    # Without Heddle's doing, Ruby would take the exception that is rescued around the block for the cause.
    def test_the_cause_is_the_error_that_left_the_block_also_within_a_rescue
      error = assert_raises(EXCEEDED) do
        inside do
          raise ArgumentError, "rescued before"
        rescue ArgumentError
          fail_late
        end
      end
      assert_equal "a client's own", error.cause.message
    end

    def test_an_error_that_leaves_in_time_is_not_converted
      assert_raises(IOError) { inside { Heddle.deadline(10) { raise IOError } } }
      assert_raises(Timeout::Error) { inside { Heddle.deadline(10) { Timeout.timeout(0.01) { sleep } } } }
    end

    def test_an_exception_beyond_standard_error_is_not_converted
      spend = -> { sleep rescue nil } # standard:disable Style/RescueModifier
      inside do
        assert_raises(Interrupt) { Heddle.deadline(0.01) { spend.call || raise(Interrupt) } }
        assert_raises(SystemExit) { Heddle.deadline(0.01) { spend.call || exit } }
        assert_equal :thrown, catch(:out) { Heddle.deadline(0.01) { spend.call || throw(:out, :thrown) } }
        assert_equal(:broken, Heddle.deadline(0.01) { spend.call || (break :broken) })
        assert_equal :returned, returning_from(spend)
      end
    end

    def test_a_value_after_a_failed_wait_is_not_returned
      assert_raises(EXCEEDED) do
        inside do
          Heddle.deadline(0.02) do
            sleep
          rescue Timeout::Error
            :half_an_answer
          end
        end
      end
    end

    def test_a_late_value_without_a_failed_wait_is_returned
      inside do
        result = Heddle.deadline(0.01) do
          busy_until = monotonic + 0.05
          nil while monotonic < busy_until
          :late
        end
        assert_equal :late, result
      end
    end

    def test_zero_seconds
      inside do
        assert_equal :value, Heddle.deadline(0) { :value }
        assert_raises(EXCEEDED) { Heddle.deadline(0) { sleep(20) } }
        assert_equal 0.0, Heddle.deadline(0) { Heddle.remaining }
      end
    end

    def test_wrong_arguments
      inside do
        assert_raises(ArgumentError) { Heddle.deadline(-1) {} }
        assert_raises(ArgumentError) { Heddle.deadline(-0.1) {} }
        assert_raises(ArgumentError) { Heddle.deadline(Float::NAN) {} }
        assert_raises(TypeError) { Heddle.deadline("1") {} }
        assert_raises(TypeError) { Heddle.deadline(:soon) {} }
        assert_includes assert_raises(ArgumentError) { Heddle.deadline(1) }.message, "block"
        assert_raises(ArgumentError) { Heddle.shield(nil) {} }
        assert_raises(ArgumentError) { Heddle.shield(Float::INFINITY) {} }
        assert_raises(ArgumentError) { Heddle.shield(1) }
      end
    end

    def test_remaining
      inside do
        assert_nil Heddle.remaining
        Heddle.deadline(100) do
          assert_in_delta 100, Heddle.remaining, 5
          Heddle.deadline(10) { assert_in_delta 10, Heddle.remaining, 5 }
          Heddle.deadline(1000) { assert_in_delta 100, Heddle.remaining, 5 }
          Heddle.shield(1000) { assert_in_delta 1000, Heddle.remaining, 5 }
          assert_in_delta 100, Heddle.remaining, 5
        end
        assert_nil Heddle.remaining
      end
    end

    def test_a_deadline_inside_a_timeout_and_the_reverse
      inside do
        assert_raises(EXCEEDED) { Timeout.timeout(10) { Heddle.deadline(0.02) { sleep } } }
        error = assert_raises(Timeout::Error) { Heddle.deadline(10) { Timeout.timeout(0.02) { sleep } } }
        refute_kind_of EXCEEDED, error
        error = assert_raises(Timeout::Error) { Timeout.timeout(0.02) { Heddle.deadline(10) { sleep } } }
        refute_kind_of EXCEEDED, error
        assert_raises(EXCEEDED) { Heddle.deadline(0.02) { Timeout.timeout(10) { sleep } } }
        late = Class.new(StandardError)
        assert_raises(late) { Timeout.timeout(0.02, late) { Heddle.deadline(10) { sleep } } }
      end
    end

    def test_tasks_started_inside_keep_the_deadline_until_they_end
      inside do
        Heddle.run do
          pool = Heddle::FiberPool.new(1)
          pool.spawn { sleep(0.005) }
          tasks = Heddle.deadline(0.03) {
            [Heddle.spawn { sleep }, pool.spawn { sleep }, Heddle.spawn { Heddle.spawn { sleep }.value }]
          }
          assert_nil Heddle.remaining
          assert_within(1, remeasure: 0) { tasks.each(&:wait) }
          assert_equal [EXCEEDED] * 3, tasks.map { |task| assert_raises(EXCEEDED) { task.value }.class }
          assert_includes tasks.first.error.message, "0.03 s"
        end
      end
    end

    def test_a_run_inside_ends_with_all_its_tasks
      tasks = []
      assert_within(1) do
        assert_raises(EXCEEDED) do
          inside { Heddle.deadline(0.03) { Heddle.run { (tasks = Array.new(3) { Heddle.spawn { sleep } }) && sleep } } }
        end
      end
      assert_equal [true], tasks.map(&:ended?).uniq
      assert_within(1) do
        assert_raises(EXCEEDED) do
          inside { Heddle.deadline(0.03) { Heddle::FiberPool.new(3).map([1, 2, 3]) { sleep } } }
        end
      end
    end

    def test_in_nested_fibers
      inside do
        fiber = Fiber.new do
          Heddle.deadline(0.02) { Fiber.new { sleep }.resume }
        rescue EXCEEDED
          :inside
        end
        assert_equal :inside, fiber.resume
      end
    end

    def test_nothing_fires_after_the_block_has_ended
      inside do
        300.times do |index|
          Heddle.deadline(0.0005) { sleep(0.0002 + index * 0.000002) }
        rescue EXCEEDED
          nil
        ensure
          sleep(0.001) if (index % 20).zero?
        end
        sleep(0.01)
      end
    end

    private

    def wait_of_a_library
      sleep
    rescue Timeout::Error
      raise IOError, "a library's own"
    end

    # Its wait has failed, and the block then raises an error of its own.
    def fail_late
      Heddle.deadline(0.02) do
        sleep
      rescue Timeout::Error
        raise IOError, "a client's own"
      end
    end

    def returning_from(spend)
      Heddle.deadline(0.01) { spend.call || (return :returned) }
    end
  end
end

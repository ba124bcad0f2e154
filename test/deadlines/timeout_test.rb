# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"

runs_on also: %i[yjit]

# Timeout.timeout under the scheduler: Ruby's own semantics, on the loop's timers.
class TimeoutTest < Minitest::Test
  include LoopHelpers

  def test_a_timeout_raises_in_every_kind_of_wait
    with_pair do |reader, _|
      Heddle.run do
        locked = Thread::Mutex.new
        waiting = Heddle.spawn { locked.synchronize { sleep } }
        {
          sleep: -> { sleep }, read: -> { reader.read(1) }, select: -> { IO.select([reader]) },
          queue: -> { Thread::Queue.new.pop },
          mutex: -> { locked.lock }, value: -> { waiting.value },
          process: -> { system("sleep 2") },
          nested: -> { Fiber.new { sleep }.resume }, yielding: -> { loop { sleep(0) } }
        }.each do |name, wait|
          assert_within(0.25, at_least: 0.02) do
            assert_raises(Timeout::Error, name.to_s) { Timeout.timeout(0.02) { wait.call } }
          end
        end
        waiting.cancel
      end
    end
  end

  def test_a_block_in_time_returns_its_value
    Heddle.run do
      assert_equal :value, Timeout.timeout(10) { sleep(0.001) && :value }
      assert_equal :value, Timeout.timeout(nil) { :value }
      assert_equal :value, Timeout.timeout(0) { sleep(0.001) && :value }
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  def test_an_exception_class_with_and_without_a_message
    late = Class.new(StandardError)
    Heddle.run do
      assert_equal "too late", assert_raises(late) { Timeout.timeout(0.005, late, "too late") { sleep } }.message
      assert_raises(late) { Timeout.timeout(0.005, late) { sleep } }
    end
  end

  def test_with_a_class_it_can_be_rescued_inside_and_is_raised_once
    Heddle.run do
      result = Timeout.timeout(0.01, IOError) do
        sleep
      rescue IOError
        sleep(0.02) # not sticky
        :rescued
      end
      assert_equal :rescued, result
    end
  end

  def test_without_a_class_it_cannot_be_rescued_inside
    Heddle.run do
      assert_raises(Timeout::Error) do
        Timeout.timeout(0.01) do
          sleep
        rescue => error
          flunk "rescued #{error.inspect}"
        end
      end
    end
  end

  def test_ensure_blocks_run_and_may_wait
    steps = []
    Heddle.run do
      assert_raises(Timeout::Error) do
        Timeout.timeout(0.01) do
          sleep
        ensure
          sleep(0.01)
          steps << :ensured
        end
      end
    end
    assert_equal [:ensured], steps
  end

  def test_nested_the_inner_first
    Heddle.run do
      assert_raises(Timeout::Error) do
        Timeout.timeout(10) { Timeout.timeout(0.01, IOError) { sleep } }
      rescue IOError
        raise Timeout::Error, "the inner one"
      end
    end
  end

  def test_nested_the_outer_first
    outer, inner = Class.new(StandardError), Class.new(StandardError)
    Heddle.run do
      assert_raises(outer) { Timeout.timeout(0.01, outer) { Timeout.timeout(10, inner) { sleep } } }
      assert_equal 0, Fiber.scheduler.statistics[:timers]
      # Both have expired at once: the outer one includes the inner.
      assert_raises(outer) do
        Timeout.timeout(0.01, outer) do
          Timeout.timeout(0.01, inner) do
            busy_until = monotonic + 0.03
            nil while monotonic < busy_until
            sleep
          end
        end
      end
    end
  end

  def test_many_tasks_have_their_own_timeouts
    Heddle.run do
      outcomes = Array.new(500) do |index|
        Heddle.spawn do
          Timeout.timeout(index.even? ? 0.02 : 20) { sleep(index.even? ? 20 : 0.02) && :slept }
        rescue Timeout::Error
          :late
        end
      end.map(&:value)
      assert_equal %i[late slept] * 250, outcomes
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  def test_nothing_fires_after_the_block_has_ended
    Heddle.run do
      200.times { Timeout.timeout(0.001) { sleep(0) } }
      sleep(0.01)
      10.times do
        Timeout.timeout(0.002) { sleep(0.0015) }
      rescue Timeout::Error
        nil
      ensure
        sleep(0.002)
      end
    end
  end

  def test_break_next_and_throw_leave_the_block
    Heddle.run do
      assert_equal :thrown, catch(:out) { Timeout.timeout(10) { throw :out, :thrown } }
      [1].each { Timeout.timeout(10) { break } }
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  def test_a_cancel_inside_a_timeout_is_a_cancel
    Heddle.run do
      task = Heddle.spawn { Timeout.timeout(100) { sleep } }
      task.cancel.wait
      assert_equal [:cancelled, 0], [task.status, Fiber.scheduler.statistics[:timers]]
    end
  end

  def test_a_timeout_of_a_task_does_not_interrupt_the_others
    Heddle.run do
      other = Heddle.spawn { sleep(0.03) && :unharmed }
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { other.value } }
      assert_equal :unharmed, other.value
    end
  end

  def test_connecting_and_reading_with_a_timeout
    server = TCPServer.new("127.0.0.1", 0)
    Heddle.run do
      client = Timeout.timeout(5) { TCPSocket.new("127.0.0.1", server.addr[1]) }
      assert_raises(Timeout::Error) { Timeout.timeout(0.02) { client.gets } }
      accepted = server.accept
      accepted.puts("still good")
      assert_equal "still good\n", Timeout.timeout(5) { client.gets }
    ensure
      [client, accepted].compact.each(&:close)
    end
  ensure
    server&.close
  end

  def test_outside_of_a_task_timeout_is_rubys_own
    assert_raises(Timeout::Error) { Timeout.timeout(0.01) { sleep } }
  end
end

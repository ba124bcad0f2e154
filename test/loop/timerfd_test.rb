# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "io/wait"

# Long waits have no limit of their own: one timer stays set for all of them. No wait may end late because of it,
# whatever time it was set to before, and whether or not it fired for nobody.
class TimerfdTest < Minitest::Test
  include LoopHelpers

  # A short wait, for which the timer may be set all the same; on a busy machine it may be set at the wait's end.
  def short_wait_within(seconds)
    @reader, @writer = UNIXSocket.pair unless @reader
    writer = Heddle.spawn { sleep(0.001) && @writer.write("x") }
    begin
      Heddle.deadline(seconds) { @reader.wait_readable }
    rescue Heddle::DeadlineExceeded
      assert_operator seconds, :<, stretched(1)
    end
    writer.wait
    assert_equal "x", @reader.readpartial(1)
  end

  def test_an_earlier_time_after_a_later_one
    Heddle.run do
      short_wait_within(60)
      assert_within(1, at_least: 0.03, remeasure: 0) { sleep(0.03) }
      short_wait_within(30)
      assert_within(1, remeasure: 0) do
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { @reader.readpartial(1) } }
      end
    end
  end

  def test_a_later_time_after_the_timer_fired_for_nobody
    Heddle.run do
      short_wait_within(0.02)
      assert_within(2, at_least: 0.1, remeasure: 0) { sleep(0.1) }
      short_wait_within(0.02)
      sleeper = Thread.new { sleep(0.1) && @writer.write("x") }
      assert_within(2, at_least: 0.05, remeasure: 0) { Heddle.deadline(60) { @reader.readpartial(1) } }
      sleeper.join
      assert_within(1, remeasure: 0) do
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.03) { @reader.readpartial(1) } }
      end
    end
  end

  # The timer may be set again at the moment at which it fires.
  def test_the_timer_is_set_again_as_it_fires
    Heddle.run do
      100.times do |index|
        short_wait_within(0.0112 + index % 10 * 0.0001)
        assert_within(1, at_least: 0.0105, remeasure: 0) { sleep(0.0105) }
      end
    end
  end

  def test_many_waits_of_all_lengths
    random = Random.new(7)
    Heddle.run do
      tasks = Array.new(50) do
        Heddle.spawn do
          20.times do
            span = random.rand**3 * 0.04
            start = monotonic
            sleep(span)
            assert_includes span..span + 1, monotonic - start
          end
        end
      end
      tasks.each(&:value)
    end
  end

  def test_the_timer_is_set_once_for_many_waits
    skip "the floor sets a limit for each wait" if Heddle::Scheduler.new.backend == "poll"
    outcome = in_child(<<~RUBY, launcher: %w[strace -f -qq -e trace=timerfd_settime])
      pairs = Array.new(2) { UNIXSocket.pair }
      pid = fork { 100.times { pairs[0][1].readpartial(1) && sleep(0.002) && pairs[1][0].write("y") } }
      Heddle.run do
        100.times { Heddle.deadline(50) { pairs[0][0].write("x") && pairs[1][1].readpartial(1) } }
        print Fiber.scheduler.statistics[:sleeps] >= 20
      end
      Process.wait(pid)
    RUBY
    skip "strace may not trace here: #{outcome.err.lines.first}" if outcome.err.include?("PTRACE")

    assert_equal "true", outcome.out, outcome.err
    settings = outcome.err.lines.grep(/timerfd_settime\(/)
    assert_includes 1..5, settings.size, outcome.err
  end
end

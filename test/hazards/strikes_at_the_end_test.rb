# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Strikes while a run ends (Thread#raise, Timeout.timeout, a trap handler that raises) must leave the thread without a
# scheduler: Ruby 3.1 keeps one whose `close` raises, and on every Ruby the end may be struck before it is called.
class StrikesAtTheEndTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  class Struck < StandardError; end

  # Strikes once, at the first call of each method in turn that a run makes, as an interrupt would.
  def strike_at(method_id)
    struck = false
    thread = Thread.current
    trace = TracePoint.new(:c_call, :call) do |point|
      next if struck || Thread.current != thread || point.method_id != method_id

      struck = true
      raise Struck, "at #{method_id}"
    end
    trace.enable { yield }
  ensure
    assert struck, "#{method_id} was never called"
  end

  def assert_runs_go_on
    assert_nil Fiber.scheduler
    assert_equal :value, Heddle.run { Heddle.spawn { sleep(0) && :value }.value }
    assert_nil Fiber.scheduler
  end

  def test_a_strike_at_the_close_of_the_scheduler
    closing = %i[scheduler_close close]
    in_thread do
      called = closing.find { |name| called?(name) { Heddle.run {} } }
      assert_raises(Struck) { strike_at(called) { Heddle.run {} } }
      assert_runs_go_on
    end
  end

  def test_strikes_from_another_thread_at_any_moment_of_the_end
    hits = 0
    in_thread do
      400.times do |round|
        struck_at_a_moment(round) and hits += 1
        assert_runs_go_on
      end
    end
    assert_operator hits, :>, 20, "the strikes never came in time"
  end

  def test_a_trap_handler_that_raises_at_any_moment_of_the_end
    out = assert_child(<<~RUBY, timeout: 60)
      class Struck < StandardError; end
      trap(:USR1) { raise Struck if $armed }
      hits = 0
      200.times do |round|
        signaller = fork { 30.times { Process.kill(:USR1, Process.ppid); sleep(0.0003) } } if round % 25 == 0
        begin
          $armed = true
          begin
            Heddle.run { 3.times { Fiber.schedule { sleep(0.0001) } } }
          ensure
            $armed = false
          end
        rescue Struck
          hits += 1
        end
        raise "a scheduler is left" if Fiber.scheduler
        Heddle.run { sleep(0) }
        Process.wait(signaller) if signaller && round % 25 == 0
      end
      puts hits
    RUBY
    assert_operator out.to_i, :>, 0
  end

  # Where the program itself has set a scheduler that Ruby 3.1 keeps after its close has raised.
  def test_a_run_under_a_closed_scheduler_takes_its_place
    in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.scheduler.close
      assert_equal :value, Heddle.run { :value }
    end
  end

  private

  def called?(method_id)
    called = false
    TracePoint.new(:c_call) { |point| called ||= point.method_id == method_id }.enable { yield }
    called
  end

  # Returns whether the strike came before the run was over.
  def struck_at_a_moment(round)
    victim = Thread.current
    over = false
    striker = Thread.new do
      (round % 40).times { Thread.pass }
      Thread.handle_interrupt(Struck => :never) { victim.raise(Struck) unless over }
    end
    Heddle.run { Fiber.schedule { sleep(0) } && sleep(0) }
    Thread.pass while striker.alive?
    false
  rescue Struck
    true
  ensure
    over = true
    begin
      striker.join
    rescue Struck
      retry
    end
  end
end

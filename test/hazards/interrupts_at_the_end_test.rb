# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Interrupts while a run ends (Thread#raise, Timeout.timeout, a trap handler that raises) must leave the thread without
# a scheduler: Ruby 3.1 keeps one whose `close` raises, and on every Ruby the end may be interrupted before it is
# called.
class InterruptsAtTheEndTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  class Interrupted < StandardError; end

  # Interrupts the first calls of a method, as an interrupt would.
  def interrupt_at(method_id, times)
    interrupted = 0
    thread = Thread.current
    trace = TracePoint.new(:c_call, :call) do |point|
      next if interrupted == times || Thread.current != thread || point.method_id != method_id

      interrupted += 1
      raise Interrupted, "at #{method_id}"
    end
    trace.enable { yield }
  ensure
    assert_operator interrupted, :>, 0, "#{method_id} was never called"
  end

  def assert_runs_go_on
    assert_nil Fiber.scheduler
    assert_equal :value, Heddle.run { Heddle.spawn { sleep(0) && :value }.value }
    assert_nil Fiber.scheduler
  end

  # Ruby 3.1 calls it again and again; signals may come as fast.
  def test_interrupts_at_the_close_of_the_scheduler
    closing = %i[scheduler_close close]
    in_thread do
      called = closing.find { |name| called?(name) { Heddle.run {} } }
      [1, 9].each do |times|
        assert_raises(Interrupted) { interrupt_at(called, times) { Heddle.run {} } }
        assert_runs_go_on
      end
    end
  end

  def test_interrupts_from_another_thread_at_any_moment_of_the_end
    hits = 0
    in_thread do
      400.times do |round|
        interrupted_at_a_moment(round) and hits += 1
        assert_runs_go_on
      end
    end
    assert_operator hits, :>, 20, "the interrupts never came in time"
  end

  # The signals come from another process all the time: one that is started for a round may be late for it.
  def test_a_trap_handler_that_raises_at_any_moment_of_the_end
    out = assert_child(<<~RUBY, timeout: 60)
      class Interrupted < StandardError; end
      armed = arrived = false
      trap(:USR1) { (arrived = true) && armed && raise(Interrupted) }
      victim = Process.pid
      signaller = fork { loop { Process.kill(:USR1, victim) && sleep(0.0003) } }
      Thread.pass until arrived
      rounds = hits = 0
      until rounds > 200 && hits > 20
        rounds += 1
        begin
          armed = true
          begin
            Heddle.run { 3.times { Fiber.schedule { sleep(0.0001) } } }
          ensure
            armed = false
          end
        rescue Interrupted
          hits += 1
        end
        raise "a scheduler is left" if Fiber.scheduler
        Heddle.run { sleep(0) }
      end
      Process.kill(:KILL, signaller)
      Process.wait(signaller)
      puts "ended"
    RUBY
    assert_equal "ended\n", out
  end

  # Where the program itself has set a scheduler that Ruby 3.1 keeps after its close has raised.
  def test_a_run_under_a_closed_scheduler_takes_its_place
    in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.scheduler.close
      assert_equal :value, Heddle.run { :value }
    end
  end

  INTERRUPTS = 10 # several times as many as a run cancels its tasks

  # A run cancels its tasks again at each interrupt, but gives up none before its shields end.
  {
    "raise" => ->(thread) { thread.raise(Interrupted) }, "kill" => ->(thread) { thread.kill },
    "kill, then raise" => ->(thread) { thread.kill && thread.raise(Interrupted) }
  }.each do |name, interrupt|
    define_method("test_many_interrupts_leave_shielded_tasks_to_their_end: #{name}") do
      assert_equal 2, tasks_that_end_under(interrupt) { |finish| Heddle.shield(20) { finish.pop } }
    end
  end

  # The shield is not the task's innermost scope: inside it, the task waits for the end of a run.
  def test_many_interrupts_let_a_shielded_task_finish_an_inner_run
    ended = tasks_that_end_under(->(thread) { thread.raise(Interrupted) }) do |finish|
      Heddle.shield(20) do
        Heddle.run { Heddle.spawn { clean_up_late { Heddle.shield(20) { finish.pop } } } && raise(Interrupted) }
      end
    rescue Interrupted
      true
    end
    assert_equal 2, ended
  end

  def test_many_interrupts_abandon_tasks_without_a_shield
    ended = nil
    warning = stderr_of do
      ended = tasks_that_end_under(->(thread) { thread.raise(Interrupted) }) do |finish|
        finish.pop
      rescue Heddle::Cancellation
        retry
      end
    end
    assert_equal 0, ended
    assert_equal 2, warning.scan("refuses to end").size
  end

  # They come before any of the tasks has run again: none has refused to end.
  def test_many_signals_at_once_let_all_tasks_clean_up
    out = assert_child(<<~RUBY)
      Interrupted = Class.new(StandardError)
      count = started = ended = 0
      trap("USR1") do
        Process.kill(:USR1, $$) if (count += 1) < #{INTERRUPTS}
        raise Interrupted
      end
      Thread.new(Thread.main) do |main|
        Thread.pass until started == 3 && main.stop?
        Process.kill(:USR1, $$)
      end
      begin
        Heddle.run do
          3.times do
            Heddle.spawn do
              started += 1
              sleep
            ensure
              ended += 1
            end
          end
          sleep
        end
      rescue Interrupted
        p [count, ended]
      end
    RUBY
    assert_equal "[#{INTERRUPTS}, 3]\n", out
  end

  def test_ctrl_c_again_and_again_leaves_shielded_tasks_to_their_end
    out = assert_child(<<~RUBY)
      count = 0
      finish = Thread::Queue.new
      trap("INT") { (count += 1) && raise(Interrupt) }
      # Only while all wait: else the error interrupts the code that runs.
      Thread.new(Thread.main) do |main|
        Thread.pass until finish.num_waiting == 1
        #{INTERRUPTS}.times do |i|
          Thread.pass until main.stop?
          Process.kill(:INT, $$)
          Thread.pass until count > i
        end
        finish << true
      end
      begin
        Heddle.run do
          Heddle.spawn do
            sleep
          ensure
            Heddle.shield(20) { finish.pop }
            puts "ended"
          end
          raise Interrupt
        end
      rescue Interrupt
        puts "interrupted"
      end
    RUBY
    assert_equal "ended\ninterrupted\n", out
  end

  # A handler runs in the fiber that polls: here the one that waits for the run's tasks, which the child does not have.
  def test_a_child_that_is_forked_while_an_interrupted_run_waits_for_its_tasks
    out = assert_child(<<~RUBY)
      Interrupted = Class.new(StandardError)
      child = status = shielded = nil
      trap("USR1") { child = fork || exit(7) }
      Thread.new(Thread.main) do |main|
        Thread.pass until shielded && main.stop?
        main.raise(Interrupted)
        Thread.pass while main.pending_interrupt? || !main.stop?
        Process.kill(:USR1, $$)
      end
      begin
        Heddle.run do
          Heddle.spawn do
            sleep
          ensure
            Heddle.shield(8) do
              shielded = true
              sleep(0.2) until child
              status = Process.wait2(child).last.exitstatus
            end
          end
          raise "the end"
        end
      rescue Interrupted
        p status
      end
    RUBY
    assert_equal "7\n", out
  end

  private

  def clean_up_late
    sleep
  ensure
    yield
  end

  # A run of two tasks, each of which calls the block in its `ensure`, in a thread that is interrupted INTERRUPTS times
  # meanwhile. Returns how many of the tasks came to their end.
  def tasks_that_end_under(interrupt)
    started, begun, finish, ended = Array.new(4) { Thread::Queue.new }
    thread = in_background do
      Heddle.run do
        2.times do
          Heddle.spawn do
            started << true
            clean_up_late { (begun << true) && yield(finish) && (ended << true) }
          end
        end
        sleep
      end
    end
    wait_until { started.size == 2 && thread.stop? }
    INTERRUPTS.times do
      interrupt.call(thread)
      wait_until { !thread.pending_interrupt? }
      wait_until { begun.size == 2 }
    end
    2.times { finish << true }
    wait_until { !thread.alive? }
    ended.size
  end

  def called?(method_id)
    called = false
    TracePoint.new(:c_call) { |point| called ||= point.method_id == method_id }.enable { yield }
    called
  end

  # Returns whether the interrupt came before the run was over.
  def interrupted_at_a_moment(round)
    victim = Thread.current
    over = false
    interrupter = Thread.new do
      (round % 40).times { Thread.pass }
      Thread.handle_interrupt(Interrupted => :never) { victim.raise(Interrupted) unless over }
    end
    Heddle.run { Fiber.schedule { sleep(0) } && sleep(0) }
    interrupter.join
    false
  rescue Interrupted
    true
  ensure
    over = true
    begin
      interrupter.join
    rescue Interrupted
      retry
    end
  end
end

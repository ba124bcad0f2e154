# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Before a deadlock is reported, the loop checks whether the program has signal handlers, which may wake a task. Ruby
# reveals a handler only to code that sets another one: whatever happens in the middle of that, every handler must be
# there afterwards.
class TrapHandlersTest < Minitest::Test
  include LoopHelpers

  # Sets a handler of each kind, and later reports which of them have changed.
  HANDLERS = <<~RUBY
    Interrupted = Class.new(StandardError)
    HANDLERS = {
      HUP: "DEFAULT", INT: "DEFAULT", QUIT: "EXIT", TRAP: "IGNORE", ALRM: nil, WINCH: "SYSTEM_DEFAULT", TERM: "DEFAULT"
    }
    HANDLERS.each { |signal, handler| trap(signal, handler) }

    def handlers
      HANDLERS.keys.to_h { |signal| [signal, trap(signal, "DEFAULT").tap { |handler| trap(signal, handler) }] }
    end

    BEFORE = handlers

    def changed = handlers.reject { |signal, handler| handler == BEFORE[signal] }

    def deadlock
      Heddle.run { Thread::Queue.new.pop }
    rescue Heddle::Deadlock, Interrupted => error
      error.class
    end
  RUBY

  # Calls +interrupt+ once during a check, at a different place in each check: before or after a change of a handler.
  INTERRUPTER = <<~RUBY
    module Interrupter
      class << self
        def each_place(interrupt, places = 0...20)
          @interrupt = interrupt
          places.each do |place|
            @left = place
            error = deadlock
            abort "place \#{place}: \#{error}" unless error == Interrupted
          end
        end

        def pass
          return unless @left
          return @left -= 1 if @left > 0

          @left = nil
          @interrupt.call
        end
      end

      def trap(...)
        Interrupter.pass
        super.tap { Interrupter.pass }
      end
    end
    Signal.singleton_class.prepend(Interrupter)
  RUBY

  def test_a_handler_that_raises_during_the_check
    out = assert_child(HANDLERS + INTERRUPTER + <<~RUBY)
      handled = 0
      Kernel.trap(:URG) { (handled += 1) && raise(Interrupted) }
      Interrupter.each_place(-> { Process.kill(:URG, Process.pid) })
      p changed, handled
    RUBY
    assert_equal "{}\n20\n", out
  end

  # A handler that ran before may have started a thread.
  def test_a_thread_that_raises_during_the_check
    out = assert_child(HANDLERS + INTERRUPTER + <<~RUBY)
      main = Thread.current
      Interrupter.each_place(-> { Thread.new { main.raise(Interrupted) }.join })
      p changed
    RUBY
    assert_equal "{}\n", out
  end

  def test_a_kill_during_the_check
    out = assert_child(HANDLERS + INTERRUPTER + <<~RUBY)
      main = Thread.current
      at_exit { p changed }
      interrupt = lambda do
        killer = Thread.new { main.kill }
        Thread.pass while killer.alive? # a join would raise what ended it
      end
      Interrupter.each_place(interrupt, 1..1)
    RUBY
    assert_equal "{}\n", out
  end

  # Each signal is sent when the handler of the previous one has run.
  def test_no_signal_is_lost_during_checks
    %i[HUP INT USR1 TERM].each do |signal|
      out = assert_child(HANDLERS + <<~RUBY)
        HANDLERS.delete(:#{signal})
        taken, take = IO.pipe
        waits = false
        handler = proc do
          take.syswrite(".")
          raised, waits = waits, false
          raise Interrupted if raised
        end
        Kernel.trap(:#{signal}, &handler)
        parent = Process.pid
        sender = fork do
          Kernel.trap(:#{signal}, "IGNORE")
          take.close
          while Process.ppid == parent
            Process.kill(:#{signal}, parent)
            next taken.readpartial(1) && sleep(rand * 0.0004) if taken.wait_readable(10)

            puts "lost"
            Process.kill(:KILL, parent)
          end
        end
        interrupted = 300.times.count { (waits = true) && deadlock == Interrupted }
        Process.kill(:KILL, sender) && Process.wait(sender)
        p interrupted, changed, Kernel.trap(:#{signal}, "DEFAULT").equal?(handler)
      RUBY
      assert_equal "300\n{}\ntrue\n", out, signal
    end
  end

  # Where the check runs, Ruby runs no trap handler: the check must not wait for that.
  def test_a_check_in_a_finalizer
    out = assert_child(HANDLERS + <<~RUBY)
      seen = []
      200.times { ObjectSpace.define_finalizer(Object.new, ->(_) { seen << deadlock }) }
      Array.new(1000) { "x" * 100 } until seen.size > 10
      p seen.uniq, changed
    RUBY
    assert_equal "[Heddle::Deadlock]\n{}\n", out
  end

  def test_a_handler_given_as_a_string_of_code
    out = assert_child(<<~RUBY, &signal_at("waits", :USR1))
      $queue = Thread::Queue.new
      trap(:USR1, "$queue << :told")
      Heddle.run { puts("waits") || puts($queue.pop) }
    RUBY
    assert_equal "waits\ntold\n", out
  end

  # Its handlers no longer run.
  def test_a_thread_that_outlives_the_main_thread
    out = assert_child(HANDLERS + <<~RUBY)
      Kernel.trap(:TERM) { nil }
      ready = Thread::Queue.new
      Thread.new do
        (ready << true) && sleep
      ensure
        p deadlock
      end
      ready.pop
    RUBY
    assert_equal "Heddle::Deadlock\n", out
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on backends: :one

# The end of a program (or thread) that has set a scheduler itself, while a fiber waits that would never end.
class EndOfTheProgramTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  START = <<~RUBY
    Thread.current.report_on_exception = false
    $began = Heddle::Clock.now
    at_exit { puts "at_exit"; puts Heddle::Clock.now - $began }
    start = lambda do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      server = TCPServer.new("127.0.0.1", 0)
      Fiber.schedule { begin; server.accept; ensure; puts "ensured"; end }
      Fiber.schedule { sleep(0.02); puts "slept" }
    end
  RUBY

  # How the main program ends, its status, and how stderr must begin.
  ENDS = {
    "exit" => ["exit(3)", 3, ""], "exit_with_success" => ["exit", 0, ""],
    "abort" => ["abort('aborted')", 1, "aborted\n"],
    "an_error" => ["raise IOError, 'boom'", 1, "-e:"], "a_throw" => ["throw :nowhere", 1, "-e:"]
  }.freeze

  ENDS.each do |name, (code, status, err)|
    define_method("test_#{name}") do
      outcome = in_child("#{START}\nstart.call\n#{code}", timeout: 10)
      assert_equal status, outcome.status.exitstatus
      assert_equal %w[slept ensured at_exit], outcome.out.lines(chomp: true).first(3)
      assert_operator Float(outcome.out.lines.last), :<, stretched(3)
      assert outcome.err.start_with?(err), outcome.err
      assert_empty outcome.err if err.empty?
      refute_includes outcome.err, "Cancellation"
    end
  end

  # Its frames lie between Ruby's call and the scheduler's own method.
  def test_a_subclass_with_a_close_of_its_own
    %w[close scheduler_close].each do |name|
      outcome = in_child(<<~RUBY, timeout: 10)
        class Own < Heddle::Scheduler
          def #{name} = [1].each { super() }
        end
        Fiber.set_scheduler(Own.new)
        Fiber.schedule { begin; sleep; ensure; puts "ensured"; end }
        exit(3)
      RUBY
      assert_equal [3, "ensured\n", ""], [outcome.status.exitstatus, outcome.out, outcome.err], name
    end
  end

  # As after other errors, the program's own code continues.
  def test_a_rescued_signal_does_not_end_the_program
    out = assert_child(<<~RUBY)
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.schedule { sleep(0.3); puts "ended" }
      begin
        Process.kill(:INT, Process.pid)
        sleep
      rescue Interrupt
        Fiber.set_scheduler(nil)
      end
      puts "continued"
    RUBY
    assert_equal "ended\ncontinued\n", out
  end

  def test_a_normal_end_waits_for_the_fibers
    out = assert_child(<<~RUBY)
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.schedule { sleep(1.3); puts "ended" }
    RUBY
    assert_equal "ended\n", out
  end

  # The error is over: the program continues.
  def test_a_rescued_error_does_not_end_the_program
    out = assert_child(<<~RUBY)
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.schedule { sleep(1.3); puts "ended" }
      begin
        raise IOError
      rescue IOError
        Fiber.set_scheduler(nil)
      end
      puts "continued"
    RUBY
    assert_equal "ended\ncontinued\n", out
  end

  def test_exit_in_a_fiber_ends_the_program
    outcome = in_child("#{START}\nstart.call\nFiber.schedule { sleep(0.01); exit(6) }", timeout: 10)
    assert_equal 6, outcome.status.exitstatus
    assert_equal %w[slept ensured at_exit], outcome.out.lines(chomp: true).first(3)
    assert_operator Float(outcome.out.lines.last), :<, stretched(3)
  end

  def test_the_main_programs_error_takes_precedence_over_a_fibers_exit
    outcome = in_child("#{START}\nstart.call\nFiber.schedule { sleep(0.01); exit(6) }\nraise IOError, 'boom'",
      timeout: 10)
    assert_equal 1, outcome.status.exitstatus
    assert_includes outcome.err, "boom (IOError)"
  end

  # Clean-up that fails reports its error, and does not change how the program ends.
  def test_an_error_in_the_clean_up
    outcome = in_child(<<~RUBY, timeout: 10)
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Fiber.schedule { begin; sleep; ensure; raise IOError, "in the clean-up"; end }
      exit(3)
    RUBY
    assert_equal 3, outcome.status.exitstatus
    assert_includes outcome.err, "in the clean-up"
  end

  # Since 3.3 or 3.4 Ruby closes the scheduler of a thread that ends with an error, or is killed; before, it forgets
  # the fibers.
  def test_the_end_of_a_thread
    {"raise IOError, 'boom'" => 1, "exit(4)" => 4, "Thread.current.kill" => 0}.each do |code, status|
      outcome = in_child("#{START}\nThread.new { start.call; #{code} }.join", timeout: 10)
      assert_equal status, outcome.status.exitstatus, code
      assert_operator Float(outcome.out.lines(chomp: true).grep(/\A\d/).last), :<, stretched(3), code
    end
    outcome = in_child("#{START}\nThread.new { start.call; sleep }; sleep(0.1)", timeout: 10)
    assert_equal 0, outcome.status.exitstatus
  end
end

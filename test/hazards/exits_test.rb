# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on backends: :one

# exit, abort, signals, Thread#raise and Thread#kill, wherever the fibers are when they interrupt. (Tests of the loop
# check that they reach the caller of the outermost run while the loop polls.)
class ExitsTest < Minitest::Test
  include LoopHelpers

  # How the process is to end, its status, and whether it must print to stderr.
  ENDS = {
    "exit" => ["exit(7)", 7],
    "abort" => ["abort('aborted')", 1],
    "an_exception" => ["raise(SystemExit.new(9))", 9],
    "sigterm_to_itself" => ["Process.kill(:TERM, $$); sleep", Signal.list["TERM"]],
    "sigint_to_itself" => ["Process.kill(:INT, $$); sleep", Signal.list["INT"]]
  }.freeze

  # Where a task is when it ends the process. %s is the end.
  PLACES = {
    "at_its_start" => "Heddle.spawn { %s }; sleep",
    "after_a_wait" => "Heddle.spawn { sleep(0.005); %s }; sleep",
    "in_ensure" => "Heddle.spawn { begin; sleep; ensure; %s; end }.cancel; sleep",
    "in_a_rescue" => "Heddle.spawn { begin; raise IOError; rescue IOError; %s; end }; sleep",
    "in_a_nested_fiber" => "Heddle.spawn { Fiber.new { sleep(0.001); %s }.resume }; sleep",
    "in_the_block" => "sleep(0.001); %s",
    "in_a_nested_run" => "Heddle.run { Heddle.spawn { sleep(0.001); %s }; sleep }",
    "in_a_pool" => "Heddle::FiberPool.new(4).map(1..4) { |n| n == 3 ? (%s) : sleep }"
  }.freeze

  # Not each end at each place, since each takes its own process.
  SOME = %w[after_a_wait in_ensure in_a_pool].freeze

  ENDS.each do |name, (code, status)|
    places = %w[exit sigterm_to_itself].include?(name) ? PLACES : PLACES.slice(*SOME)

    define_method("test_#{name}") do
      outcomes = places.map do |place, template|
        outcome = in_child(<<~RUBY, timeout: 10)
          at_exit { puts "at_exit" }
          Heddle.run do
            Heddle.spawn { begin; sleep; ensure; puts "ensured"; end }
            #{template % code}
          end
          puts "continued"
        RUBY
        ended = outcome.status.exitstatus || outcome.status.termsig
        assert_empty outcome.err, place if name == "exit"
        [place, outcome.out.lines(chomp: true).uniq, ended]
      end
      assert_equal places.keys.map { |place| [place, %w[ensured at_exit], status] }, outcomes
    end
  end

  def test_exit_bang_ends_at_once
    outcome = in_child("Heddle.run { Heddle.spawn { begin; sleep; ensure; puts 'ensured'; end }; exit!(6) }")
    assert_equal ["", 6], [outcome.out, outcome.status.exitstatus]
  end

  def test_exceptions_in_at_exit
    outcome = in_child(<<~RUBY)
      at_exit { puts "first" }
      at_exit { raise IOError, "in at_exit" }
      at_exit { puts Heddle.run { Heddle.spawn { sleep(0.001) && "loop in at_exit" }.value } }
      at_exit { Heddle.run { raise ArgumentError, "out of a run in at_exit" } }
      Heddle.run { sleep(0.001) }
    RUBY
    assert_equal ["loop in at_exit", "first"], outcome.out.lines(chomp: true)
    assert_includes outcome.err, "in at_exit"
    assert_includes outcome.err, "out of a run in at_exit"
    refute_includes outcome.err, "[BUG]"
  end

  def test_exceptions_in_at_exit_under_a_plain_scheduler
    outcome = in_child(<<~RUBY)
      Fiber.set_scheduler(Heddle::Scheduler.new)
      at_exit { raise IOError, "in at_exit" }
      Fiber.schedule { sleep(0.005); puts "slept" }
      Fiber.schedule { sleep(0.001); raise ArgumentError, "in a fiber" }
    RUBY
    assert_includes outcome.out, "slept"
    assert_includes outcome.err, "in at_exit"
    refute_includes outcome.err, "[BUG]"
  end

  # Thread#kill bypasses every rescue; only ensure sees it.
  def test_thread_kill_at_every_place
    seen = Thread::Queue.new
    bodies = {
      waiting: ->(ready) { Heddle.spawn { begin sleep ensure seen << :waiting end } && ready.call && sleep },
      busy: ->(ready) { Heddle.spawn { begin sleep ensure seen << :busy end } && ready.call && loop { sleep(0) } },
      computing: ->(ready) { Heddle.spawn { begin sleep ensure seen << :computing end } && ready.call && loop {} },
      cleaning: lambda { |ready|
        task = Heddle.spawn { begin sleep ensure ready.call && begin sleep ensure seen << :cleaning end end }
        task.cancel
        sleep
      }
    }
    bodies.each do |name, body|
      ready = Thread::Queue.new
      thread = Thread.new { Heddle.run { body.call(-> { ready << 1 }) } }
      ready.pop
      2.times { Thread.pass }
      thread.kill
      assert thread.join(stretched(10)), "#{name}: the thread did not end"
      assert_equal name, seen.pop
    end
    assert_equal 1, Heddle.run { Heddle.spawn { 1 }.value }
  end

  def test_thread_raise_in_a_storm
    interrupted = 0
    thread = Thread.new do
      Heddle.run do
        10.times { Heddle.spawn { loop { sleep(0.0005) } } }
        sleep
      end
    rescue IOError
      interrupted += 1
      retry if interrupted < 30
    end
    thread.report_on_exception = false
    while thread.alive?
      thread.raise(IOError, "storm")
      sleep(0.002)
    end
    # It may interrupt between two runs, where nothing rescues it.
    assert_raises(IOError) { thread.value } if interrupted < 30
    assert_equal 1, Heddle.run { Heddle.spawn { sleep(0.001) && 1 }.value }
  end

  # A handler that uses the loop: it spawns, waits, raises.
  def test_trap_handlers_that_use_the_loop
    out = assert_child(<<~RUBY)
      Heddle.run do
        queue = Thread::Queue.new
        trap("USR1") { queue << :pushed }
        trap("USR2") { Thread.main[:task] = Heddle.spawn { sleep(0.001) && :spawned } }
        popper = Heddle.spawn { queue.pop }
        sleeper = Heddle.spawn { sleep(0.05) && :slept }
        20.times { Process.kill(:USR1, $$) }
        Process.kill(:USR2, $$)
        puts popper.value, sleeper.value
      end
      puts Thread.main[:task]&.value.inspect
    RUBY
    assert_equal %w[pushed slept], out.lines(chomp: true).first(2)
  end

  def test_an_error_in_a_trap_handler_comes_to_the_caller_of_run
    out = assert_child(<<~RUBY)
      trap("USR1") { raise IOError, "from the handler" }
      begin
        Heddle.run do
          Heddle.spawn { begin; sleep; ensure; puts "ensured"; end }
          Thread.new { Process.kill(:USR1, $$) }
          sleep
        end
      rescue IOError => error
        puts error.message
      end
    RUBY
    assert_equal ["ensured", "from the handler"], out.lines(chomp: true)
  end
end

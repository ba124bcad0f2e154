# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "tmpdir"

# Scopes of a fiber that yields in the middle of them: an Enumerator with a deadline around its elements.
class AbandonedScopeTest < Minitest::Test
  include LoopHelpers

  mode :mixed

  EXCEEDED = Heddle::DeadlineExceeded

  def self.test_both(name, &body)
    define_method("test_#{name}_in_a_thread") { in_thread { instance_exec(&body) } }
    define_method("test_#{name}_in_a_task") { Heddle.run { instance_exec(&body) } }
  end

  test_both(:one_that_is_given_up_halfway_fails_nobody) do
    elements = lines(0.02)
    elements.next
    sleep(0.1)
    assert_nil Heddle.remaining
    assert_equal :value, Heddle.deadline(20) { sleep(0.01) && :value }
    assert_raises(EXCEEDED) { Heddle.deadline(0.02) { sleep(20) } }
    sleep(0.05)
  end

  test_both(:one_that_yields_does_not_bind_others) do
    elements = lines(20)
    elements.next
    assert_nil Heddle.remaining
    Heddle.shield(10) do
      elements.next
      assert_in_delta 10, Heddle.remaining, 5
    end
  end

  test_both(:a_shield_that_yields_hides_nothing) do
    shielded = Enumerator.new { |yielder| Heddle.shield(20) { 3.times { |index| yielder << index } } }
    assert_within(5) do
      assert_raises(EXCEEDED) do
        Heddle.deadline(0.02) do
          shielded.next
          sleep(20)
        end
      end
    end
  end

  # Scopes that were never used are reused: the scope that is left a second time may then belong to another block.
  def test_a_scope_that_a_continuation_leaves_twice
    out = assert_child(<<~RUBY, timeout: 20)
      require "continuation"
      $times = 0
      goes_on = Thread::Queue.new
      Heddle.deadline(10) { callcc { |continuation| $again = continuation } }
      if ($times += 1) == 1
        $other = Thread.new { Heddle.deadline(30) { goes_on.pop && Heddle.remaining } }
        Thread.pass until $other.stop?
      end
      $again.call if $times < 4
      goes_on << true
      print $times, " ", $other.value&.round, " ", Heddle.deadline(20) { Heddle.deadline(5) { Heddle.remaining } }.round
    RUBY
    assert_equal "4 30 5", out
  end

  # On 3.1 the fiber of Enumerator#next is a blocking one: no loop knows of its waits.
  test_both(:one_that_is_resumed_after_its_time_fails_there) do
    failed = nil
    fiber = Fiber.new do
      Heddle.deadline(0.02) do
        Fiber.yield
        sleep(20)
      end
    rescue EXCEEDED
      failed = true
    end
    fiber.resume
    sleep(0.05)
    assert_within(5, remeasure: 0) { fiber.resume }
    assert failed
  end

  # A program's folder and its methods may have the names that Ruby uses for a fiber's operations.
  FOLDERS = ["(terminated)", "x (suspended)", "plain (suspended)>"].freeze
  BODIES = [
    "Heddle.deadline(0.05) { Fiber.new { sleep(0.5) }.resume }",
    "Fiber.new { Heddle.deadline(0.05) { Fiber.new { sleep(0.5) }.resume } }.resume",
    "Fiber.new { Heddle.deadline(0.05) { Fiber.new { Fiber.new { sleep(0.5) }.resume }.resume } }.resume"
  ].freeze

  def test_names_like_those_of_fiber_operations
    FOLDERS.each do |folder|
      Dir.mktmpdir do |parent|
        path = File.join(parent, folder, "program.rb")
        Dir.mkdir(File.dirname(path))
        File.write(path, <<~RUBY)
          BODIES = [#{BODIES.map { |body| "-> { #{body} }" }.join(", ")}]
          def slept?(&block)
            began = Heddle::Clock.now
            block.call
            :no_error
          rescue Heddle::DeadlineExceeded
            Heddle::Clock.now - began > 0.4
          end
          p BODIES.flat_map { |body| [slept? { body.call }, slept? { Heddle.run { body.call } }] }
        RUBY
        assert_equal "#{[false] * 6}\n", assert_child("load #{path.dump}"), folder
      end
    end
  end

  # A program's own method with the name of one that resumes fibers; and one whose label Ruby cannot ask for.
  test_both(:one_that_yields_from_a_method_named_resume) do
    resume = Class.new { define_method(:resume) { Fiber.yield } }.new
    fiber = Fiber.new { Heddle.deadline(0.02) { resume.resume } }
    fiber.resume
    sleep(0.05)
    assert_equal :value, Fiber.new { sleep(0.001) && :value }.resume
    assert_nil Heddle.remaining
  end

  # A third fiber is between the one that has the deadline and the one that waits, and C code resumes it:
  # Enumerator::Lazy, zip.
  test_both(:one_that_is_resumed_by_c_code) do
    assert_within(5) do
      waited = Enumerator.new do |yielder|
        sleep(ruby_at_least?("3.2") ? 20 : 0.1)
        yielder << 1
      end
      assert_raises(EXCEEDED) do
        Fiber.new { Heddle.deadline(0.02) { [1].each_entry.zip(waited) && sleep(20) } }.resume
      end
    end
  end

  test_both(:one_that_a_fiber_opens_before_any_other) do
    elements = lines(0.02)
    elements.next
    assert_equal 1, elements.next
    sleep(0.05)
    Heddle.deadline(20) { assert_equal :value, Fiber.new { sleep(0.001) && :value }.resume }
  end

  test_both(:one_whose_fiber_has_ended_by_a_throw) do
    fiber = Fiber.new { catch(:out) { Heddle.deadline(0.02) { throw :out } } && Fiber.yield }
    fiber.resume
    sleep(0.05)
    assert_nil Heddle.remaining
  end

  # Only Ruby's own switches are known, not those to a fiber that the program transfers to. Its root fiber's scope
  # applies all the same.
  def test_a_scope_around_a_transfer
    in_thread do
      assert_within(5) do
        root = Fiber.current
        assert_raises(EXCEEDED) { Heddle.deadline(0.02) { Fiber.new { sleep(20) || root.transfer }.transfer } }
      end
    end
  end

  # A scope of the fiber that a task or thread begins with never asks Ruby anything: between the decision to wait and
  # the wait no other code may run.
  test_both(:waits_in_nested_fibers_ask_ruby_nothing) do
    calls = []
    Heddle.deadline(20) do
      Fiber.new do
        TracePoint.new(:c_call) { |point| calls << point.method_id }.enable(target_thread: Thread.current) do
          3.times { sleep(0.001) }
        end
      end.resume
    end
    assert_empty calls & %i[to_s bind_call backtrace_locations base_label alive?]
  end

  test_both(:one_outside_binds_those_that_it_resumes) do
    assert_within(5) do
      assert_raises(EXCEEDED) do
        Heddle.deadline(0.02) do
          Fiber.new { Fiber.new { sleep(20) }.resume }.resume
        end
      end
    end
  end

  # Nor does it keep the helper thread, or the fiber, for ever.
  def test_a_scope_that_cannot_be_left_is_forgotten
    out = assert_child(<<~RUBY, timeout: 50)
      fibers = ObjectSpace::WeakMap.new
      make = lambda do
        Heddle.deadline(60) do
          50.times do |index|
            elements = Enumerator.new do |yielder|
              fibers[index] = Fiber.current
              Heddle.deadline(0.01) { yielder << 1 << 2 }
            end
            elements.next
          end
        end
      end
      make.call
      100.times { Array.new(100) { [] } }
      alive = -> { GC.start; fibers.values.size }
      limit = Heddle::Clock.now + 20
      sleep 0.05 while alive.call > 10 && Heddle::Clock.now < limit
      puts alive.call <= 10
    RUBY
    assert_equal "true\n", out
  end

  private

  def lines(seconds)
    Enumerator.new { |yielder| Heddle.deadline(seconds) { 3.times { |index| yielder << index } } }
  end
end

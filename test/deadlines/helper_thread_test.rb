# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on backends: :one

# The thread that keeps the deadlines of all plain threads: when it raises, and when it does not; its life.
class HelperThreadTest < Minitest::Test
  include LoopHelpers

  mode :thread
  hard_deadline 120

  EXCEEDED = Heddle::DeadlineExceeded

  # Each scope ends at about its deadline: sometimes before, sometimes after. A raise outside of its scope ends the
  # thread; a wait that outlives its deadline has lost it.
  def test_twenty_thousand_scopes_whose_deadline_falls_at_their_end
    threads = Array.new(4) do |number|
      Thread.new do
        Thread.current.report_on_exception = false
        fired = 0
        random = Random.new(number)
        5000.times do
          begin
            Heddle.deadline(0.00005) { sleep(random.rand * 0.0001) }
          rescue EXCEEDED
            fired += 1
          end
          Thread.pass if random.rand(10).zero? # leftovers of the queue would be raised here
        end
        fired
      end
    end
    fired = threads.sum(&:value)
    refute_predicate Thread.current, :pending_interrupt?
    assert_includes 1...20_000, fired
  end

  def test_scopes_whose_wait_ends_with_their_deadline
    fired = returned = 0
    in_thread do
      3000.times do |index|
        span = 0.0002 + (index % 50) * 0.000002
        start = monotonic
        begin
          Heddle.deadline(0.00025) { sleep(span) }
          returned += 1
        rescue EXCEEDED
          fired += 1
        end
        assert_operator monotonic - start, :<, stretched(5)
        Thread.pass
      end
      sleep(0.01)
    end
    assert_equal 3000, fired + returned
  end

  def test_no_deadline_is_lost
    in_thread do
      300.times { |index| assert_raises(EXCEEDED) { Heddle.deadline(0.0001 * (index % 10)) { sleep(30) } } }
    end
  end

  def test_many_threads
    outcomes = Array.new(50) do |index|
      Thread.new do
        Heddle.deadline(index.even? ? 0.03 : 20) { sleep(index.even? ? 20 : 0.03) && :slept }
      rescue EXCEEDED
        :late
      end
    end.map(&:value)
    assert_equal %i[late slept] * 25, outcomes
    assert_operator Thread.list.count { |thread| thread.name == "heddle deadlines" }, :<=, 1
  end

  def test_an_earlier_deadline_wakes_the_helper
    late = Thread.new { Heddle.deadline(60) { sleep } }
    late.report_on_exception = false
    wait_until { late.stop? }
    assert_within(1) { assert_raises(EXCEEDED) { Heddle.deadline(0.02) { sleep } } }
  ensure
    late.kill.join
  end

  # The helper lets other threads run in the middle of its check of a scope. An inner shield ends meanwhile, and makes
  # the helper check again, as each check does at its end. If the scope were in the heap twice, it would still be
  # there after its block.
  def test_a_shield_ends_while_the_helper_checks_the_scope_around_it
    out = assert_child(<<~RUBY)
      looks = 0
      left = over = false
      thread = Thread.new do
        Thread.current.define_singleton_method(:alive?) do
          if Thread.current.name == "heddle deadlines"
            looks += 1
            Thread.pass until left
          end
          super()
        end
        Heddle.deadline(0.02) do
          Heddle.shield(20) { Thread.pass until looks > 0 }
          left = true
          Thread.pass until over
        end
      end
      Thread.pass until looks > 2 # it asks twice a look
      over = true
      thread.join
      Heddle.deadline(0.05) { sleep } rescue puts $!.class
    RUBY
    assert_equal "Heddle::DeadlineExceeded\n", out
  end

  # Ruby code makes its exception, and meanwhile the thread starts a pool's loop.
  def test_a_timeout_interrupts_its_own_fiber_and_no_task_that_has_started_meanwhile
    out = assert_child(<<~RUBY)
      require "heddle/timeout"
      $making = $in_task = $over = false

      class Slow < StandardError
        def self.exception(*)
          $making = true
          Thread.pass until $in_task
          super
        end
      end

      begin
        Timeout.timeout(0.02, Slow) do
          Thread.pass until $making
          Heddle::FiberPool.new(1).map([1]) do
            $in_task = true
            100.times { Thread.pass }
            sleep(10)
          rescue Slow
            puts "in the task"
            raise
          end
        end
      rescue Slow
        puts "in its own fiber"
      end
    RUBY
    assert_equal "in its own fiber\n", out
  end

  # Whatever the thread's masks are, nothing may be raised after the block.
  def test_a_raise_that_a_mask_delays_is_withdrawn
    Thread.handle_interrupt(Timeout::Error => :never) do
      value = Heddle.deadline(0.01) { sleep(0.05) && :value }
      assert_equal :value, value
      refute Thread.pending_interrupt?
    end
    sleep(0.005)
  end

  def test_another_exception_that_arrives_meanwhile_is_kept
    thread = Thread.new do
      Thread.handle_interrupt(Exception => :never) do
        begin
          Heddle.deadline(0.01) { sleep(0.1) }
        rescue EXCEEDED
          nil
        end
        Thread.handle_interrupt(IOError => :immediate) { Thread.pass }
        :not_raised
      rescue IOError
        :raised
      end
    end
    wait_until { thread.stop? }
    thread.raise(IOError, "from outside")
    assert_equal :raised, thread.value
  end

  def test_a_masked_interrupt_of_other_code_does_not_delay_the_deadline
    entered = false
    thread = Thread.new do
      Thread.handle_interrupt(IOError => :never) do
        Heddle.deadline(0.05) do
          entered = true
          sleep(20)
        end
      rescue EXCEEDED
        :late
      ensure
        Thread.current[:left] = true
      end
    end
    thread.report_on_exception = false
    wait_until { entered }
    thread.raise(IOError, "from outside")
    assert_within(5, remeasure: 0) { wait_until { thread[:left] } }
    assert_raises(IOError) { thread.value }
  end

  def test_a_thread_that_is_killed_in_a_scope
    ensured = false
    thread = Thread.new do
      Heddle.deadline(60) { sleep }
    ensure
      ensured = true
    end
    wait_until { thread.stop? }
    thread.kill.join
    assert ensured
  end

  def test_code_that_computes_is_interrupted_at_its_next_wait
    reached = []
    assert_raises(EXCEEDED) do
      in_thread do
        Heddle.deadline(0.01) do
          busy_until = monotonic + 0.15
          nil while monotonic < busy_until
          reached << :computed
          sleep(20)
          reached << :waited
        end
      end
    end
    assert_equal [:computed], reached
  end

  def test_a_task_is_not_interrupted_for_its_threads_deadline
    seen = []
    assert_raises(EXCEEDED) do
      in_thread do
        Heddle.deadline(0.03) do
          Heddle.run do
            Heddle.spawn do
              Heddle.shield(20) { 20.times { sleep(0.005) } }
              seen << :shielded
            end
            sleep
          end
        end
      end
    end
    assert_equal [:shielded], seen
  end

  def test_the_helper_ends_when_it_is_idle
    out = assert_child(<<~RUBY)
      names = -> { Thread.list.map(&:name) }
      Heddle.deadline(0.01) { 1 }
      puts names.call.include?("heddle deadlines")
      limit = Heddle::Clock.now + 10
      while names.call.include?("heddle deadlines") && Heddle::Clock.now < limit
        sleep 0.05
      end
      puts names.call.include?("heddle deadlines")
      begin
        Heddle.deadline(0.01) { sleep }
      rescue Heddle::DeadlineExceeded
        puts "again"
      end
    RUBY
    assert_equal %w[true false again], out.split
  end

  # Ruby's own check, when a thread goes to sleep, and the loop's.
  def test_deadlocks_are_found_after_the_helper_has_ended
    out = assert_child(<<~RUBY)
      Heddle.deadline(0.01) { 1 }
      sleep 0.05 while Thread.list.size > 1
      begin
        Thread::Queue.new.pop
      rescue Exception => error
        puts error.class
      end
      Heddle.deadline(0.01) { 1 }
      begin
        Heddle.run { Thread::Queue.new.pop }
      rescue Heddle::Deadlock => error
        puts error.class
      end
      begin
        Heddle.deadline(0.02) { Heddle.run { Thread::Queue.new.pop } }
      rescue Heddle::DeadlineExceeded => error
        puts error.class
      end
    RUBY
    assert_equal %w[fatal Heddle::Deadlock Heddle::DeadlineExceeded], out.split
  end

  def test_the_helper_after_a_fork
    out = assert_child(<<~RUBY)
      pid = nil
      begin
        Heddle.deadline(0.2) do
          pid = fork do
            begin
              sleep
            rescue Heddle::DeadlineExceeded
              Heddle.shield(10) { puts "child, inherited" } # a write is a wait like another
            end
            begin
              Heddle.shield(10) { Heddle.deadline(0.01) { sleep } }
            rescue Heddle::DeadlineExceeded
              Heddle.shield(10) { puts "child, its own" }
            end
            exit!(0)
          end
          sleep
        end
      rescue Heddle::DeadlineExceeded
        Process.wait(pid)
        puts "parent"
      end
    RUBY
    assert_equal ["child, inherited", "child, its own", "parent"], out.lines(chomp: true)
  end

  def test_a_killed_helper_is_replaced
    out = assert_child(<<~RUBY)
      Heddle.deadline(10) { 1 }
      Thread.list.find { |thread| thread.name == "heddle deadlines" }.kill.join
      begin
        Heddle.deadline(0.01) { sleep }
      rescue Heddle::DeadlineExceeded
        puts "kept"
      end
    RUBY
    assert_equal "kept\n", out
  end

  def test_a_killed_helper_leaves_its_deadlines_to_the_next
    out = assert_child(<<~RUBY)
      thread = Thread.new do
        Heddle.deadline(0.3) { sleep }
      rescue Heddle::DeadlineExceeded
        "kept"
      end
      helper = nil
      sleep 0.001 until (helper = Thread.list.find { |found| found.name == "heddle deadlines" })
      3.times do
        helper.kill.join
        sleep 0.001 until (helper = Thread.list.find { |found| found.name == "heddle deadlines" })
      end
      puts thread.value
    RUBY
    assert_equal "kept\n", out
  end

  def test_an_open_deadline_does_not_keep_the_program_alive
    assert_within(5) { assert_child("Thread.new { Heddle.deadline(1000) { sleep } }; sleep 0.05; puts 1") }
  end

  def test_a_thread_in_a_closed_group_and_under_a_mask_can_start_the_helper
    out = assert_child(<<~RUBY)
      group = ThreadGroup.new
      thread = Thread.new do
        Thread.stop
        Thread.handle_interrupt(Object => :never) do
          begin
            Heddle.deadline(0.01) { Thread.handle_interrupt(Object => :immediate) { sleep } }
          rescue Heddle::DeadlineExceeded
            puts "kept"
          end
        end
      end
      sleep 0.01 until thread.stop?
      group.add(thread)
      group.enclose
      thread.wakeup
      thread.join
    RUBY
    assert_equal "kept\n", out
  end

  # Nobody leaves these scopes, and their threads have ended.
  def test_threads_that_end_with_an_abandoned_scope
    out = assert_child(<<~RUBY)
      20.times do
        Thread.new do
          fiber = Fiber.new { Heddle.deadline(0.2) { Fiber.yield } }
          fiber.resume
        end.join
      end
      10.times { GC.start && Array.new(10_000) { +"" } }
      sleep 0.3
      10.times { GC.start && Array.new(10_000) { +"" } }
      puts "done"
    RUBY
    assert_equal "done\n", out
  end

  def test_under_gc_stress
    out = assert_child(<<~RUBY, timeout: 50)
      GC.stress = true
      20.times do
        Heddle.deadline(0.005) { sleep }
      rescue Heddle::DeadlineExceeded
        Heddle.deadline(1) { Heddle.shield(1) { sleep(0.0001) } }
      end
      GC.stress = false
      puts "done"
    RUBY
    assert_equal "done\n", out
  end

  # Exceptions that a mask has delayed together with the deadline's error interrupt as the block ends.
  def test_the_last_interrupt_is_not_lost_beside_the_deadline
    first, last = Interrupt, Class.new(Interrupt)
    masked = Thread::Queue.new
    thread = Thread.new do
      Heddle.deadline(0.05) do
        Thread.handle_interrupt(Object => :never) do
          masked << true
          sleep 0.2
        end
      end
    rescue last
      :last
    rescue EXCEEDED, first
      :lost
    end
    masked.pop
    thread.raise(first)
    thread.raise(last)
    assert_equal :last, thread.value
  end

  # On Ruby 3.1, a Timeout throws to its border.
  def test_a_timeout_and_an_interrupt_that_wait_together_beside_the_deadline
    assert_equal "interrupted\n", assert_child(<<~RUBY)
      require "heddle/timeout"
      Interrupted = Class.new(Exception)
      masked = Thread::Queue.new
      thread = Thread.new do
        Timeout.timeout(0.06) do
          Heddle.deadline(0.03) do
            Thread.handle_interrupt(Object => :never) do
              masked << true
              sleep 0.3
            end
          end
        end
      rescue Interrupted
        :interrupted
      rescue Exception => error
        error.class
      end
      masked.pop
      sleep 0.15
      thread.raise(Interrupted)
      puts thread.value
    RUBY
  end
end

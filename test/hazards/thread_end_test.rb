# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on backends: :one

# A thread that ends while tasks wait: Ruby crashes on a fiber that is left in the list of a Mutex or a thread.
class ThreadEndTest < Minitest::Test
  include LoopHelpers

  # What a fiber waits for, and what looks at its waiters later.
  WAITS = {
    "a_mutex" => ["lock.synchronize { }", "lock.unlock"],
    "a_threads_end" => ["helper.join", "lock.unlock; helper.join"],
    "a_queue" => ["queue.pop", "queue << 1"]
  }.freeze

  # How the fiber comes to exist when the thread ends.
  LEFT = {
    "in_map" => "Heddle::FiberPool.new(2).map([1]) { Heddle.spawn { wait.call }; ready << 1; sleep }",
    "in_wait" => "pool = Heddle::FiberPool.new(2); pool.spawn { wait.call }; pool.spawn { ready << 1; %s }; pool.wait"
  }.freeze

  WAITS.each do |name, (wait, waking)|
    define_method("test_a_thread_that_is_killed_while_a_fiber_waits_for_#{name}") do
      assert_survives(LEFT["in_map"], wait, "thread.kill", waking)
    end

    define_method("test_a_thread_that_exits_while_a_fiber_waits_for_#{name}") do
      assert_survives(LEFT["in_wait"] % "Thread.exit", wait, "", waking)
    end

    define_method("test_a_thread_that_is_interrupted_while_a_fiber_waits_for_#{name}") do
      assert_survives(LEFT["in_wait"] % "sleep", wait, "thread.raise('on purpose')", waking)
    end
  end

  # Their tasks were in a loop that has ended. Who still waits for room then runs the pool.
  def test_other_threads_learn_of_the_end
    outcome = in_child(<<~RUBY, timeout: 20)
      pools = Queue.new
      owner = Thread.new { Heddle::FiberPool.new(1, queue: 1).tap { |pool| pools << pool }.map([1]) { sleep } }
      pool = pools.pop
      waiting = Thread.new { pool.spawn { sleep }.value }
      Thread.pass until waiting.stop? && pool.statistics[:queued] == 1
      spawning = Thread.new { puts pool.spawn { 2 }.value }
      Thread.pass until spawning.stop?
      owner.kill.join
      [waiting, spawning].each do |thread|
        thread.report_on_exception = false
        puts thread.join(5) ? "ended" : "still there"
      rescue Heddle::Error => error
        puts error.class
      end
    RUBY
    assert_equal ["2", "Heddle::TaskCancelled", "ended"], outcome.out.split.sort
  end

  # Where the thread is killed: in a task's own code, and in the pool's, which records its end.
  INTERRUPTS = {
    "in_a_task" => "ready << 1; nil while true",
    "in_the_pools_code" => "$interrupt = Thread.current; ready << 1; $interrupted.pop"
  }.freeze

  INTERRUPTS.each do |name, code|
    define_method("test_a_pool_loses_no_place_to_a_kill_#{name}") do
      output = assert_child(<<~RUBY, timeout: 20)
        Heddle::FiberPool.prepend(Module.new do
          def pass_on_place(task)
            interrupting, $interrupt = $interrupt, nil
            interrupting&.kill
            super
          end
          private :pass_on_place
        end)
        ready, $interrupted, pool = Queue.new, Queue.new, nil
        thread = Thread.new do
          pool = Heddle::FiberPool.new(2)
          pool.map([1, 2]) { |item| (item == 1) ? sleep : (#{code}) }
        ensure
          pool.close
        end
        ready.pop
        $interrupted << 1
        thread.kill if #{name == "in_a_task"}
        puts thread.join(5) ? "ended" : "still there"
        p pool.statistics[:running]
      RUBY
      assert_equal "ended\n0\n", output
    end
  end

  # The interrupt was for the thread, not for the pool.
  def test_an_exception_in_the_pools_code_is_raised_in_the_thread
    output = assert_child(<<~RUBY, timeout: 20)
      Heddle::FiberPool.prepend(Module.new do
        def pass_on_place(task)
          interrupting, $interrupt = $interrupt, nil
          interrupting&.raise(IOError, "interrupted")
          super
        end
        private :pass_on_place
      end)
      pool = Heddle::FiberPool.new(2)
      begin
        pool.map([1, 2]) { |item| (item == 1) ? sleep(5) : $interrupt = Thread.current }
      rescue IOError => error
        puts error.message
      end
      p pool.statistics[:running]
    RUBY
    assert_equal "interrupted\n0\n", output
  end

  private

  def assert_survives(leaving, wait, ending, waking)
    outcome = in_child(<<~RUBY, timeout: 20)
      lock, queue, ready = Mutex.new, Queue.new, Queue.new
      lock.lock
      helper = Thread.new { lock.synchronize { } }
      Thread.pass until helper.stop?
      wait = -> do
        #{wait}
      ensure
        puts "ensured"
      end
      thread = Thread.new { Thread.current.report_on_exception = false; #{leaving} }
      ready.pop
      #{ending}
      begin
        thread.join
      rescue RuntimeError
        puts "failed"
      end
      GC.start
      #{waking}
      puts "ended"
    RUBY
    assert outcome.status.success?, outcome.err[0, 500]
    assert_equal %w[ended ensured], outcome.out.lines(chomp: true).uniq.sort - ["failed"]
  end
end

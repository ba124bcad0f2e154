# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# A fork while other threads are at work: the child has none of them, and Ruby's garbage collector, the locks and the
# queues must not meet what they left behind.
class ForkBesideThreadsTest < Minitest::Test
  include LoopHelpers

  # What a child does: starts threads, whose stacks the C library takes from the parent's dead threads, and collects.
  # `outcomes` counts how the children ended: 0, or the number of a signal, or :late.
  CHILDREN = <<~'RUBY'
    def work_in_child
      2.times do
        Array.new(8) { Thread.new { Array.new(200) { |i| "x#{i}" }.sort.join && sleep(0.001) } }.each(&:join)
        GC.start
      end
    end

    def outcomes(count, seconds: 20)
      Array.new(count) do
        pid = fork do
          $stderr.reopen(File::NULL) # a crash prints thousands of lines
          Process.setrlimit(:CORE, 0)
          work_in_child
          exit!(0)
        end
        limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
        until (status = Process.wait2(pid, Process::WNOHANG)&.last)
          if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
            Process.kill(:KILL, pid)
            Process.wait(pid)
            break
          end
          sleep(0.002)
        end
        next :late unless status
        status.signaled? ? "SIG#{Signal.signame(status.termsig)}" : status.exitstatus
      end.tally
    end
  RUBY

  # The fault is Ruby's: no Heddle in this program. Without it the next test would show nothing.
  def test_ruby_before_3_3_crashes_a_child_that_was_forked_beside_fibers_in_threads
    skip "Ruby 3.3 and later allocate the VM stack of a thread apart from its C stack" if ruby_at_least?("3.3")

    out = assert_child(<<~RUBY, timeout: 60, heddle: false)
      #{CHILDREN}
      threads = Array.new(8) { Thread.new { Fiber.new { loop { sleep(0.001) && [1, 2].map(&:to_s) } }.resume } }
      sleep(0.05)
      p outcomes(10).keys.any?(String), threads.size
      exit!(0)
    RUBY
    assert_equal "true\n8\n", out
  end

  def test_children_that_are_forked_beside_offloaded_blocks
    out = assert_child(<<~RUBY, timeout: 60)
      #{CHILDREN}
      Heddle.run do
        busy = Array.new(8) { Heddle.spawn { Heddle.offload { loop { sleep(0.001) && [1, 2].map(&:to_s) } } } }
        Heddle.offload { sleep(0.02) }
        p outcomes(20)
        busy.each(&:cancel)
      end
    RUBY
    assert_equal({0 => 20}.inspect, out.chomp)
  end

  # More stacks than the C library keeps (40 MB): it unmaps them once a thread of the child has ended.
  def test_children_that_are_forked_beside_a_hundred_jobs
    out = assert_child(<<~RUBY, timeout: 60)
      #{CHILDREN}
      workers = Heddle.const_get(:WorkerThreads).new("test", 100)
      Heddle.run do
        gate = Thread::Queue.new
        jobs = Array.new(100) { Heddle.spawn { workers.run(-> { gate.pop }) } }
        sleep(0.01) until gate.num_waiting == 100
        p outcomes(5)
        gate.close
        jobs.each(&:value)
      end
    RUBY
    assert_equal({0 => 5}.inspect, out.chomp)
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# An exception from outside (Thread#raise, a Timeout, a handler of a signal) interrupts at each moment of a run at which
# Ruby lets one in: here a TracePoint raises it at the n-th event of a program, for each n. It arrives exactly once: it
# leaves the run, or it is the error of the task whose block it interrupted. Afterwards everything works.
class InterruptsAnywhereTest < Minitest::Test
  include LoopHelpers

  EVENTS = %i[call return c_call c_return b_call b_return fiber_switch].freeze
  # There a TracePoint interrupts where no interrupt can: Ruby would neither unlock, nor wake the next, nor raise; and
  # it checks for none within an expression of calls of C functions. Queue#push, which the programs wait for, is written
  # in Ruby from 4.1 on.
  LEFT_OUT = [Thread::Mutex, Exception, Array, Hash].freeze
  LEFT_OUT_METHODS = %i[unblock push].freeze

  class Interrupted < StandardError # the worst case: code that means well rescues it
    def full_message(...) = "interrupted"
  end

  # What a run does, and what interrupts it.
  PROGRAMS = {
    tasks: -> { 3.times { Heddle.spawn {} } },
    waiting_tasks: -> { Array.new(3) { Heddle.spawn { sleep(0) } }.each(&:wait) },
    storage: lambda do
      Fiber[:key] = 1 if Fiber.respond_to?(:[]=)
      2.times { Heddle.spawn { Thread.current[:local] = 1 } }
    end,
    pool: -> { Heddle::FiberPool.new(2, queue: 1).map([1, 2, 3, 4]) { sleep(0) } },
    posted: lambda do
      pool = Heddle::FiberPool.new(2)
      gate = Thread::Queue.new
      Thread.new { 3.times { pool.spawn { gate << 1 } } }
      3.times { gate.pop }
    end,
    posted_at_once: lambda do # before the loop runs: a blocking fiber's wait lets other threads run, and no other fiber
      pool = Heddle::FiberPool.new(1, queue: 3)
      gate = Thread::Queue.new
      thread = Thread.new { 3.times { pool.spawn { gate << 1 } } }
      Fiber.new(blocking: true) { thread.join }.resume
      3.times { gate.pop }
    end,
    failures: lambda do
      3.times do
        Heddle.spawn { raise IOError, "of a task" }.value
      rescue IOError
        nil
      end
    end,
    reports: -> { 2.times { Heddle.spawn { raise IOError, "unasked" } } && sleep(0) },
    deadlines: lambda do
      Heddle.spawn { Heddle.deadline(0.001) { sleep } }.value
    rescue Heddle::DeadlineExceeded
      nil
    end,
    cancels: -> { Heddle.spawn { sleep }.tap(&:cancel).wait },
    locks: lambda do
      mutex = Thread::Mutex.new
      2.times { Heddle.spawn { mutex.synchronize { sleep(0) } } }
    end
  }.freeze

  # This one, and finalizers of other tests' temporary files: Ruby drops what a finalizer raises.
  FILES_LEFT_OUT = [__FILE__, Tempfile.instance_method(:initialize).source_location.first].freeze
  private_constant :FILES_LEFT_OUT

  PROGRAMS.each do |name, program|
    define_method("test_#{name}") do
      stderr_of do # reports
        in_thread do
          moment = 1
          # Later moments are the same code for other tasks.
          moment += (moment < 400) ? 1 : 7 while interrupt(moment, program)
          assert_operator moment, :>, 10
        end
      end
    end
  end

  private

  def left_out?(point)
    FILES_LEFT_OUT.include?(point.path) || LEFT_OUT.include?(point.defined_class) ||
      LEFT_OUT_METHODS.include?(point.method_id)
  end

  # @return [Boolean] false when the run was over before that moment
  def interrupt(moment, program)
    seen, where, interrupted = 0, nil, Interrupted.new
    trace = TracePoint.new(*EVENTS) do |point|
      next if left_out?(point) || (seen += 1) != moment

      where = "#{point.event} #{point.defined_class}##{point.method_id} at #{point.path}:#{point.lineno}"
      raise interrupted
    end
    raised = begin
      trace.enable(target_thread: Thread.current) { Heddle.run { program.call } }
      nil
    rescue Interrupted, IOError => error
      error
    end
    return false unless where

    tasks = ObjectSpace.each_object(Heddle::Task)
    known = interrupted.equal?(raised) || tasks.any? { |task| interrupted.equal?(task.error) }
    assert known, "after the moment #{moment}, #{where}: the exception is lost"
    assert_nil Fiber.scheduler, "after the moment #{moment}, #{where}"
    assert_equal [2, 4], Heddle.run { Heddle::FiberPool.new(2).map([1, 2]) { |item| sleep(0) && item * 2 } }, where
    true
  end
end

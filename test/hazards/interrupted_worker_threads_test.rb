# frozen_string_literal: true

require "test_helper"
require "heddle"
require "heddle/core/worker_threads"

runs_on rubies: :ends, backends: :one

# Another thread's exception (Thread#raise, Timeout.timeout) interrupts a caller that hands a job to a worker thread, at
# the end of each call. The place of the thread that was about to start is not lost: with all places lost, later jobs
# would wait for ever.
class InterruptedWorkerThreadsTest < Minitest::Test
  mode :thread

  Interrupted = Class.new(Exception) # rubocop:disable Lint/InheritException -- nobody is to rescue it

  EVENTS = %i[line return c_call c_return b_return].freeze

  def test_every_moment
    moment = 0
    loop do
      threads = Heddle.const_get(:WorkerThreads).new("interrupted", 1)
      where = interrupted_at(moment += 1, threads)
      later = Thread.new { threads.run(-> { :later }) }
      assert later.join(stretched(5)), "a later job waits after the moment #{moment}, #{where}"
      assert_equal :later, later.value
      break unless where
    ensure
      later&.kill&.join
    end
    assert_operator moment, :>, 10
  end

  # Another thread runs what a thread had not begun when it was killed.
  def test_a_thread_that_is_killed_as_it_takes_a_job
    moment = 0
    loop do
      threads = Heddle.const_get(:WorkerThreads).new("killed", 1)
      caller = where = nil
      killed_at(moment += 1, ->(place) { where = place }) do
        caller = Thread.new { threads.run(-> { :ran }) }
        assert caller.join(stretched(5)), "its caller waits for ever: killed at #{where}"
      end
      assert_equal :ran, caller.value
      wait_until(what: "the end of the job") { threads.use == [0, 0] }
      break unless where
    ensure
      caller&.kill&.join
    end
    assert_operator moment, :>, 5
  end

  def test_a_thread_that_is_killed_before_its_first_line
    threads = Heddle.const_get(:WorkerThreads).new("killed at once", 1)
    threads.send(:start_thread)
    Thread.list.find { |thread| thread.name == "killed at once" }.kill.join
    caller = Thread.new { threads.run(-> { :ran }) }
    assert caller.join(stretched(5)), "its place is lost"
  ensure
    caller&.kill&.join
  end

  private

  def killed_at(moment, told, &block)
    seen = 0
    trace = TracePoint.new(:line, :return, :b_return) do |point|
      next unless point.method_id == :next_job && Thread.current.name == "killed" && (seen += 1) == moment

      told.call("#{point.lineno} #{point.event}")
      Thread.current.kill
    end
    trace.enable(target_thread: nil, &block)
  end

  # Where it was interrupted; nil when the call was over before that moment.
  def interrupted_at(moment, threads)
    seen, where = 0, nil
    trace = TracePoint.new(*EVENTS) do |point|
      next unless point.path&.end_with?("heddle/core/worker_threads.rb")
      next unless (seen += 1) == moment

      where = [point.event, point.lineno, point.method_id].inspect
      Thread.current.raise(Interrupted)
    end
    trace.enable(target_thread: Thread.current) { threads.run(-> { :first }, grace: 0.1) }
    where
  rescue Interrupted
    where
  end
end

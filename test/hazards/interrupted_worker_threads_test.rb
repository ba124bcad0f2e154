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

  private

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

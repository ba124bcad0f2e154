# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on rubies: :ends, backends: :one

# A thread ends itself, or a trap handler ends it, at each moment of the fork of a worker: handle_interrupt keeps
# neither off. The next Heddle.map still forks.
class InterruptedForksTest < Minitest::Test
  include LoopHelpers

  mode :thread
  hard_deadline 120

  WORKER = %r{lib/heddle/processes/worker\.rb}
  EVENTS = %i[line c_call c_return b_call b_return].freeze

  def test_a_kill_leaves_the_next_fork_its_turn
    moment = 0
    while (place = killed_at(moment += 1))
      thread = in_background { map }
      assert thread.join(10), "the next fork waits for ever after a kill at #{place}: #{thread.backtrace&.first(3)}"
      assert_equal [1, 2], thread.value
    end
    assert_operator moment, :>, 20
  end

  private

  # @return [String, nil] nil when the forks were over before that moment
  def killed_at(moment)
    seen, place, pid = 0, nil, Process.pid
    thread = in_background do
      trace = TracePoint.new(*EVENTS) do |point|
        next unless point.path&.match?(WORKER) && point.method_id == :fork_connected && Process.pid == pid
        next unless (seen += 1) == moment

        place = "#{point.lineno} #{point.event}"
        Thread.current.kill
      end
      trace.enable(target_thread: Thread.current) { map }
    end
    assert thread.join(10), "it did not end after a kill at #{place}"
    place
  end

  def map = Heddle.map([1, 2], processes: 2, fibers: 1) { |item| item }
end

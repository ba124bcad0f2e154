# frozen_string_literal: true

require "test_helper"
require "heddle"
require "socket"

# The bytes that wait to be sent to a worker.
class ProcessesOutgoingTest < Minitest::Test
  mode :thread

  ITEM = ("x" * 100_000).freeze

  # The queue of bytes is never empty, and its sent part is freed all the same.
  def test_sent_bytes_are_freed_while_others_wait
    UNIXSocket.pair do |ours, theirs|
      worker = Heddle::Processes.send(:const_get, :Worker).new(Process.pid, ours, theirs.fileno, 1000)
      given = 0
      give = -> { worker.give(given += 1, [nil], [ITEM]) }
      give.call while worker.room?
      sizes = Array.new(200) do
        theirs.read(ITEM.bytesize)
        give.call
        assert_predicate worker, :owed?
        worker.instance_variable_get(:@outgoing).bytesize
      end
      assert_operator sizes.max, :<, 5_000_000
    end
  end

  # Integers have any length, as Symbols do.
  def test_long_integers_and_symbols_count_as_many_bytes
    transfer = Heddle::Processes.send(:const_get, :Transfer)
    sizes = [1 << (16 << 20), ("x" * (2 << 20)).to_sym].map { |value| transfer.bytesize(value) }
    assert_operator sizes.min, :>=, 2 << 20
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# IO#close waits until the fibers that wait for the IO have left. A passed deadline or a cancel must not end that
# wait: the descriptor would stay open, and the others would never leave it.
class InterruptedCloseTest < Minitest::Test
  include LoopHelpers

  READS = {
    gets: ->(io) { io.gets },
    read: ->(io) { io.read(1) },
    wait_readable: ->(io) { io.wait_readable }
  }.freeze
  KINDS = {socket: -> { UNIXSocket.pair }, pipe: -> { IO.pipe }}.freeze

  READS.each do |name, read|
    KINDS.each do |kind, make|
      define_method("test_a_deadline_that_has_passed_when_a_#{kind}_is_closed_under_#{name}") do
        closes_under(make, read) do |io|
          Heddle.deadline(0.001) do
            sleep
          ensure
            io.close
          end
        rescue Heddle::DeadlineExceeded
          nil
        end
      end

      define_method("test_a_cancel_when_a_#{kind}_is_closed_under_#{name}") do
        closes_under(make, read) do |io|
          closer = Heddle.spawn { io.close }
          closer.cancel.wait(5) || flunk("the close did not end")
        end
      end
    end
  end

  private

  def closes_under(make, read)
    GC.start # closes what earlier tests left, which would make the count smaller
    before = descriptor_count
    5.times do
      Heddle.run do
        pair = make.call
        reader = Heddle.spawn do
          read.call(pair[0])
        rescue IOError => error
          error
        end
        yield pair[0]
        assert_predicate pair[0], :closed?
        assert reader.wait(5), "the reader still waits"
        assert_kind_of IOError, reader.value
        pair[1].close
      end
    end
    assert_equal before, descriptor_count
  end
end

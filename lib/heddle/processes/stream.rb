# frozen_string_literal: true

module Heddle
  class Processes
    # Values from several processes, one by one and in order; made by {Processes#stream}. Each call of `each`, and of
    # whatever Enumerable makes of it, does the work anew.
    #
    # With an external enumerator (`each_entry.next`, `to_enum`) the workers stay until it has come to its end.
    class Stream
      include Enumerable

      # Bytes of values that may wait for one before them, until no more items are taken. What is in work then still comes.
      BYTES = 16 << 20

      # @api private
      def initialize(processes, items, block, ahead)
        @processes = processes
        @items = items
        @block = block
        @ahead = ahead
      end

      # @yieldparam value [Object] of the next item. Leaving the block early ends the workers.
      # @return [self]
      def each
        return enum_for(:each) unless block_given?

        waiting = {}
        bytes = delivered = 0
        room = ->(taken) { taken - delivered < @ahead && bytes < BYTES }
        Dealer.new(@processes, @block, keep: true, room: room).run(@items) do |index, payload|
          waiting[index] = payload
          bytes += payload.bytesize
          while (payload = waiting.delete(delivered))
            bytes -= payload.bytesize
            value = Transfer.load_value(payload, delivered)
            delivered += 1
            yield value
          end
        end
        self
      end

      # @return [String]
      def inspect = "#<#{self.class} of #{@processes.inspect}>"
    end
  end
end

# frozen_string_literal: true

module Heddle
  class Processes
    # Values from several processes, one by one and in order; made by {Processes#stream}. Each call of `each`, and of
    # any method of Enumerable, repeats the work.
    #
    # With an external enumerator (`each_entry.next`, `to_enum`) the workers run until the enumerator has ended.
    class Stream
      include Enumerable

      # While more bytes of values than this wait for an earlier value, no items are taken. Values of items in work
      # still arrive.
      BYTES = 16 << 20

      # @api private
      def initialize(processes, items, block, ahead)
        @processes = processes
        @items = items
        @block = block
        @ahead = ahead
      end

      # @yieldparam value [Object] the next item's value. Leaving the block early ends the workers.
      # @return [self]
      def each
        return enum_for(:each) unless block_given?

        waiting = {}
        bytes = delivered = 0
        room = ->(taken) { (bytes < BYTES) ? @ahead - (taken - delivered) : 0 }
        Dispatcher.new(@processes, @block, keep: true, room: room).run(@items) do |index, content|
          waiting[index] = content
          bytes += Transfer.bytesize(content)
          while waiting.key?(delivered)
            content = waiting.delete(delivered)
            bytes -= Transfer.bytesize(content)
            value = Transfer.load_value(content, delivered)
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

# frozen_string_literal: true

module Heddle
  class Processes
    # What travels between a worker and its parent: a byte that says what it is, the item's number, a length, and as many
    # bytes.
    class Frames
      # To a worker, and what comes back.
      ITEM = 0
      VALUE = 1
      ERROR = 2

      HEADER = "CQ>Q>"
      HEADER_BYTES = 17
      private_constant :HEADER, :HEADER_BYTES

      # @return [String]
      def self.header(kind, index, payload)
        [kind, index, payload.bytesize].pack(HEADER)
      end

      def initialize
        @buffer = String.new(encoding: Encoding::BINARY)
      end

      # Takes what was read in, and yields the frames that are complete.
      # @yieldparam kind [Integer]
      # @yieldparam index [Integer]
      # @yieldparam payload [String]
      def push(bytes)
        @buffer << bytes
        start = 0
        while @buffer.bytesize - start >= HEADER_BYTES
          kind, index, size = @buffer.unpack(HEADER, offset: start)
          break if @buffer.bytesize - start - HEADER_BYTES < size

          payload = @buffer.byteslice(start + HEADER_BYTES, size)
          start += HEADER_BYTES + size
          yield kind, index, payload
        end
      ensure
        @buffer = @buffer.byteslice(start, @buffer.bytesize) if start.positive?
      end
    end
  end
end

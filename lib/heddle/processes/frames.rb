# frozen_string_literal: true

require "zlib"

module Heddle
  class Processes
    # What travels between a worker and its parent: a mark, a byte that says what it is, the item's number, a length, a check of
    # the payload, a check of all these, and the payload.
    #
    # A block may write to any descriptor, so also to that of its worker's connection, and a library that was told a wrong
    # number does. The checks tell such bytes from frames: a length that is none must not have the other side wait for ever.
    class Frames
      # What has come is no frame.
      class Garbage < StandardError
      end

      # To a worker, and what comes back.
      ITEM = 0
      VALUE = 1
      ERROR = 2

      # Bytes of a payload, at most.
      LARGEST = 1 << 30

      MARK = "\xF5Hed".b.freeze
      FIELDS = "a4CQ>Q>N"
      FIELD_BYTES = 25
      HEADER = "#{FIELDS}N"
      HEADER_BYTES = FIELD_BYTES + 4
      private_constant :MARK, :FIELDS, :FIELD_BYTES, :HEADER, :HEADER_BYTES

      # @return [String]
      def self.header(kind, index, payload)
        fields = [MARK, kind, index, payload.bytesize, Zlib.crc32(payload)].pack(FIELDS)
        fields << [Zlib.crc32(fields)].pack("N")
      end

      def initialize
        @buffer = String.new(encoding: Encoding::BINARY)
      end

      # Takes what was read in, and yields the frames that are complete.
      # @yieldparam kind [Integer]
      # @yieldparam index [Integer]
      # @yieldparam payload [String]
      # @raise [Garbage] nothing can be taken from this connection any more
      def push(bytes)
        @buffer << bytes
        start = 0
        while @buffer.bytesize - start >= HEADER_BYTES
          kind, index, size, sum = header_at(start)
          break if @buffer.bytesize - start - HEADER_BYTES < size

          payload = @buffer.byteslice(start + HEADER_BYTES, size)
          raise Garbage, "the check of its payload fails" unless Zlib.crc32(payload) == sum

          start += HEADER_BYTES + size
          yield kind, index, payload
        end
        check_mark(@buffer.byteslice(start, MARK.bytesize)) if start < @buffer.bytesize
      ensure
        @buffer = @buffer.byteslice(start, @buffer.bytesize) if start.positive?
      end

      private

      def header_at(start)
        mark, kind, index, size, sum, check = @buffer.unpack(HEADER, offset: start)
        check_mark(mark)
        unless Zlib.crc32(@buffer.byteslice(start, FIELD_BYTES)) == check && size <= LARGEST
          raise Garbage, "the check of its header fails"
        end

        [kind, index, size, sum]
      end

      # Of a header that is not complete, too: what follows may never come.
      def check_mark(found)
        raise Garbage, "it begins with #{found.inspect}" unless MARK.start_with?(found)
      end
    end
  end
end

# frozen_string_literal: true

require "zlib"

module Heddle
  class Processes
    # The protocol between a worker and its parent. A frame is a mark, a byte for its kind, the item's number, a length,
    # a checksum of the payload, a checksum of this header, and the payload.
    #
    # A block can write to any descriptor, even to its worker's connection; a library with a wrong number does. The
    # checksums tell such bytes from frames: a garbage length would make the other side wait for ever.
    class Frames
      # The bytes received are not a frame.
      class Garbage < StandardError
      end

      # Kinds: to a worker, and back.
      ITEM = 0
      VALUE = 1
      ERROR = 2

      # The most bytes of a payload.
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

      # Adds bytes that were read, and yields each complete frame.
      # @yieldparam kind [Integer]
      # @yieldparam index [Integer]
      # @yieldparam payload [String]
      # @raise [Garbage] this connection is unusable from now on
      def push(bytes)
        @buffer << bytes
        start = 0
        while @buffer.bytesize - start >= HEADER_BYTES
          kind, index, size, sum = header_at(start)
          break if @buffer.bytesize - start - HEADER_BYTES < size

          payload = @buffer.byteslice(start + HEADER_BYTES, size)
          raise Garbage, "the checksum of its payload does not match" unless Zlib.crc32(payload) == sum

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
          raise Garbage, "the checksum of its header does not match"
        end

        [kind, index, size, sum]
      end

      # Also checks an incomplete header: the rest may never come.
      def check_mark(found)
        raise Garbage, "it begins with #{found.inspect}" unless MARK.start_with?(found)
      end
    end
  end
end

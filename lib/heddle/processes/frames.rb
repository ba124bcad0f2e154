# frozen_string_literal: true

require "zlib"

module Heddle
  class Processes
    # The protocol between a worker and its parent. A frame carries an object: a run of items to a worker, or of answers
    # back. What a frame costs, its system calls, its Marshal and the other side's wake-up, is shared by all of its run.
    #
    # A frame is a mark, the length of its body, a checksum of the body, a checksum of this header, and the body: the
    # object's dump.
    #
    # A block can write to any descriptor, even to its worker's connection; a library with a wrong number does. The
    # checksums tell such bytes from frames: a garbage length would make the other side wait for ever.
    class Frames
      # The bytes received are not a frame.
      class Garbage < StandardError
      end

      # The most bytes of a content.
      LARGEST = 1 << 30

      MARK = "\xF5Hed".b.freeze
      FIELDS = "a4Q>N"
      FIELD_BYTES = 16
      HEADER = "#{FIELDS}N"
      HEADER_BYTES = FIELD_BYTES + 4
      private_constant :MARK, :FIELDS, :FIELD_BYTES, :HEADER, :HEADER_BYTES

      # Appends the object's frame to these bytes.
      # @return [String] the bytes
      def self.append(object, bytes)
        body = Marshal.dump(object)
        bytes << header(body.bytesize, Zlib.crc32(body)) << body
      end

      # @param size [Integer] of the body, bytes
      # @param sum [Integer] the body's checksum
      # @return [String]
      def self.header(size, sum)
        fields = [MARK, size, sum].pack(FIELDS)
        fields << [Zlib.crc32(fields)].pack("N")
      end

      def initialize
        @buffer = String.new(encoding: Encoding::BINARY)
      end

      # Adds bytes that were read, and yields the objects of complete frames.
      # @yieldparam object [Object]
      # @raise [Garbage] this connection is unusable from now on
      def push(bytes)
        @buffer << bytes
        start = 0
        while @buffer.bytesize - start >= HEADER_BYTES
          size, sum = header_at(start)
          break if @buffer.bytesize - start - HEADER_BYTES < size

          body = @buffer.byteslice(start + HEADER_BYTES, size)
          raise Garbage, "the checksum of its body does not match" unless Zlib.crc32(body) == sum

          start += HEADER_BYTES + size
          yield Marshal.load(body) # rubocop:disable Security/MarshalLoad -- plain values
        end
        check_mark(@buffer.byteslice(start, MARK.bytesize)) if start < @buffer.bytesize
      ensure
        @buffer = @buffer.byteslice(start, @buffer.bytesize) if start.positive?
      end

      private

      # A run ends with the content that makes it long, so that a body is little longer than the largest content: twice
      # as long is beyond doubt.
      def header_at(start)
        mark, size, sum, check = @buffer.unpack(HEADER, offset: start)
        check_mark(mark)
        unless Zlib.crc32(@buffer.byteslice(start, FIELD_BYTES)) == check && size <= 2 * LARGEST
          raise Garbage, "the checksum of its header does not match"
        end

        [size, sum]
      end

      # Also checks an incomplete header: the rest may never come.
      def check_mark(found)
        raise Garbage, "it begins with #{found.inspect}" unless MARK.start_with?(found)
      end
    end
  end
end

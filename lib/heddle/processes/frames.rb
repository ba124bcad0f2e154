# frozen_string_literal: true

require "zlib"

module Heddle
  class Processes
    # The protocol between a worker and its parent. A frame carries a run of messages: all items that the parent has for
    # a worker, or all answers that a worker has, when the socket takes them. What a frame costs, its system calls, its
    # Marshal and the other side's wake-up, is shared by its messages. Items that take long travel alone and short ones
    # together, without a rule that says so.
    #
    # A frame is a mark, the length of its body, a checksum of the body, a checksum of this header, and the body: the
    # dump of an Array with the kind, the item's number and the content of each message, one after the other.
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

      # The most bytes of a content.
      LARGEST = 1 << 30

      MARK = "\xF5Hed".b.freeze
      FIELDS = "a4Q>N"
      FIELD_BYTES = 16
      HEADER = "#{FIELDS}N"
      HEADER_BYTES = FIELD_BYTES + 4
      PARTS = 3 # of a message
      private_constant :MARK, :FIELDS, :FIELD_BYTES, :HEADER, :HEADER_BYTES, :PARTS

      # Messages that wait to be sent in a frame.
      class Run
        def initialize = clear

        # @param content [Object] see {Transfer}
        def add(kind, index, content)
          @messages << kind << index << content
          @bytesize += Transfer.bytesize(content)
        end

        def empty? = @messages.empty?

        # @return [Integer] about that many bytes are to be sent
        attr_reader :bytesize

        # Appends the frame to these bytes, and is empty afterwards.
        # @return [String]
        def move_to(bytes)
          body = Marshal.dump(@messages)
          clear
          bytes << Frames.header(body.bytesize, Zlib.crc32(body)) << body
        end

        private

        def clear
          @messages = []
          @bytesize = 0
        end
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

      # Adds bytes that were read, and yields each message of complete frames.
      # @yieldparam kind [Integer]
      # @yieldparam index [Integer]
      # @yieldparam content [Object]
      # @raise [Garbage] this connection is unusable from now on
      def push(bytes, &message)
        @buffer << bytes
        start = 0
        while @buffer.bytesize - start >= HEADER_BYTES
          size, sum = header_at(start)
          break if @buffer.bytesize - start - HEADER_BYTES < size

          body = @buffer.byteslice(start + HEADER_BYTES, size)
          raise Garbage, "the checksum of its body does not match" unless Zlib.crc32(body) == sum

          start += HEADER_BYTES + size
          each_message(Marshal.load(body), &message) # rubocop:disable Security/MarshalLoad -- plain values
        end
        check_mark(@buffer.byteslice(start, MARK.bytesize)) if start < @buffer.bytesize
      ensure
        @buffer = @buffer.byteslice(start, @buffer.bytesize) if start.positive?
      end

      private

      def each_message(messages)
        at = 0
        while at < messages.size
          yield messages[at], messages[at + 1], messages[at + 2]
          at += PARTS
        end
      end

      # A run ends with the message that makes it long, so that a body is little longer than the largest content: twice
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

# frozen_string_literal: true

require_relative "compressor"

module Heddle
  class Memcached
    # Turns objects into bytes, and back. Stores the same flags as dalli, so that each client reads the other's values.
    #
    # @api private
    class Codec
      SERIALIZED = 1
      COMPRESSED = 2
      UTF8 = 4

      # Stores only Strings, unchanged.
      module Strings
        def self.dump(value)
          raise TypeError, "serializer: :string stores only Strings" unless value.is_a?(String)

          value
        end

        def self.load(bytes)
          bytes
        end
      end

      # JSON without the additions of JSON.load: objects of any class that the bytes name.
      module Json
        def self.dump(value)
          JSON.generate(value)
        end

        def self.load(bytes)
          JSON.parse(bytes.force_encoding(Encoding::UTF_8))
        end
      end

      MIN_COMPRESS_BYTES = 4 << 10
      MAX_DECOMPRESSED_BYTES = 128 << 20
      # All values of one reply together may have this many times +max_decompressed_bytes+.
      REPLY_OF_VALUES = 4

      # Counts the decompressed bytes that are left for the values of one reply: many small values could each be made to
      # expand to the limit of a single value.
      class Allowance
        attr_accessor :left

        def initialize(left) = @left = left
      end

      # @param serializer [:marshal, :json, :string, #dump & #load]
      # @param plain_strings [Boolean] whether Strings are stored unchanged, with their encoding if it is UTF-8
      # @param compressor [#compress & #decompress, nil] nil: {Compressor}
      # @param compress [Boolean]
      # @param min_compress_bytes [Integer] bytes
      # @param max_decompressed_bytes [Integer] the most bytes of a decompressed value
      def initialize(serializer: :marshal, plain_strings: true, compressor: nil, compress: true,
        min_compress_bytes: MIN_COMPRESS_BYTES, max_decompressed_bytes: MAX_DECOMPRESSED_BYTES)
        @serializer = known(serializer)
        @plain_strings = plain_strings || serializer == :string
        @compressor = compressor || Compressor
        @min_compress_bytes = compress ? min_compress_bytes : Float::INFINITY
        @max_decompressed_bytes = max_decompressed_bytes
        @limited = @compressor.method(:decompress).parameters.any? do |kind, name|
          name == :max_bytes && %i[key keyreq].include?(kind)
        end
      end

      # @param compress [Boolean, nil] nil: from min_compress_bytes on
      # @param plain [Boolean, nil] whether a String is stored unchanged; nil: by plain_strings
      # @return [Array(String, Integer)] bytes and flags
      # @raise [EncodeError]
      def dump(value, compress: nil, plain: nil)
        bytes, flags = serialized(value, plain.nil? ? @plain_strings : plain)
        return [bytes, flags] if compress == false || bytes.bytesize < (compress ? 1 : @min_compress_bytes)

        smaller = @compressor.compress(bytes)
        (smaller.bytesize < bytes.bytesize) ? [smaller, flags | COMPRESSED] : [bytes, flags]
      end

      # @return [Allowance] for the values of one reply
      def allowance = Allowance.new(REPLY_OF_VALUES * @max_decompressed_bytes)

      # @param bytes [String] may be modified
      # @param flags [Integer]
      # @param allowance [Allowance, nil] for one of several values
      # @return [Object]
      # @raise [DecodeError]
      def load(bytes, flags, allowance = nil)
        bytes = decompressed(bytes, allowance) if flags.anybits?(COMPRESSED)
        if flags.anybits?(SERIALIZED)
          deserialized(bytes)
        elsif flags.anybits?(UTF8)
          bytes.force_encoding(Encoding::UTF_8)
        else
          bytes
        end
      end

      private

      def known(serializer)
        case serializer
        when :marshal then Marshal
        when :string then Strings
        when :json
          require "json"
          Json
        else
          unless serializer.respond_to?(:dump) && serializer.respond_to?(:load)
            raise ArgumentError,
              "a serializer must be :marshal, :json, :string, or have methods dump and load: got #{serializer.inspect}"
          end

          serializer
        end
      end

      def serialized(value, plain)
        if plain && value.instance_of?(String)
          encoding = value.encoding
          return [value, UTF8] if encoding == Encoding::UTF_8
          return [value, 0] if encoding == Encoding::BINARY || @serializer == Strings
        end
        [@serializer.dump(value), (@serializer == Strings) ? 0 : SERIALIZED]
      rescue Timeout::Error
        raise
      rescue => error
        raise error if works? { @serializer.dump(value) }

        raise EncodeError, "a value of the class #{value.class} cannot be stored: #{error.message}"
      end

      def deserialized(bytes)
        @serializer.load(bytes)
      rescue Timeout::Error
        raise
      rescue => error
        raise error if works? { @serializer.load(bytes) }

        raise DecodeError, "the stored value cannot be read with #{@serializer}: #{error.message}"
      end

      def decompressed(bytes, allowance)
        most = allowance ? [@max_decompressed_bytes, allowance.left].min : @max_decompressed_bytes
        whole = decompress(bytes, most)
        spend(allowance, whole.bytesize) if allowance
        whole
      rescue DecodeError, Timeout::Error
        raise
      rescue => error
        raise error if works? { decompress(bytes, most) }

        raise DecodeError, "the stored value cannot be decompressed: #{error.message}"
      end

      def decompress(bytes, most)
        @limited ? @compressor.decompress(bytes, max_bytes: most) : @compressor.decompress(bytes)
      end

      def spend(allowance, size)
        allowance.left -= size
        return unless allowance.left.negative?

        raise DecodeError, "the values of one reply grew beyond #{REPLY_OF_VALUES * @max_decompressed_bytes} bytes " \
          "when they were decompressed: ask for fewer values at once, or raise max_decompressed_bytes"
      end

      # Tells an error of the value from an error that another thread raised in this one (Thread#raise, a Timeout with a
      # class), which must be raised unchanged: repeats the work with such errors deferred. If that works, the value is
      # not at fault.
      def works?
        Thread.handle_interrupt(Timeout::Error => :immediate, StandardError => :never) do
          yield
          true
        rescue Timeout::Error
          raise
        rescue # inside of the block, at whose end a deferred error is raised
          false
        end
      end
    end
  end
end

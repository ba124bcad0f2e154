# frozen_string_literal: true

require "zlib"

module Heddle
  class Memcached
    # @api private zlib, as dalli uses it. Decompression stops where the value passes the limit: a few KB can be made to
    #   expand to GBs.
    module Compressor
      # The most bytes that zlib makes of one byte.
      MOST_GROWTH = 1032

      class << self
        # @return [String]
        def compress(bytes)
          Zlib.deflate(bytes)
        end

        # @param max_bytes [Integer] the most bytes of the result
        # @return [String]
        # @raise [DecodeError, Zlib::Error]
        def decompress(bytes, max_bytes:)
          return Zlib.inflate(bytes) if bytes.bytesize * MOST_GROWTH <= max_bytes

          inflater = Zlib::Inflate.new
          out = String.new(encoding: Encoding::BINARY)
          inflater.inflate(bytes) { |chunk| within(out << chunk, max_bytes) }
          raise Zlib::BufError, "it is cut short" unless inflater.finished?

          out
        ensure
          inflater&.close
        end

        private

        def within(out, max_bytes)
          return if out.bytesize <= max_bytes

          raise DecodeError, "a value grew beyond #{max_bytes} bytes while it was decompressed: " \
            "raise max_decompressed_bytes, or find out which program stored it"
        end
      end
    end
  end
end

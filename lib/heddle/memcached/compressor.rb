# frozen_string_literal: true

require "zlib"

module Heddle
  class Memcached
    # @api private zlib, as dalli has it. What grows beyond a limit is given up where it does: a few KB can be made to stand for GBs.
    module Compressor
      # What zlib can make of a byte at most.
      MOST_GROWTH = 1032

      class << self
        # @return [String]
        def compress(bytes)
          Zlib.deflate(bytes)
        end

        # @param max_bytes [Integer] that may come out
        # @return [String]
        # @raise [DecodeError, Zlib::Error]
        def decompress(bytes, max_bytes:)
          return Zlib.inflate(bytes) if bytes.bytesize * MOST_GROWTH <= max_bytes

          inflater = Zlib::Inflate.new
          out = String.new(encoding: Encoding::BINARY)
          inflater.inflate(bytes) { |chunk| within(out << chunk, max_bytes) }
          raise Zlib::BufError, "it is not whole" unless inflater.finished?

          out
        ensure
          inflater&.close
        end

        private

        def within(out, max_bytes)
          return if out.bytesize <= max_bytes

          raise DecodeError, "a value grew beyond #{max_bytes} bytes while it was decompressed: raise max_decompressed_bytes, or find out who stored it"
        end
      end
    end
  end
end

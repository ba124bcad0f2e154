# frozen_string_literal: true

module Heddle
  class Memcached
    # Keys as they are sent, the same as dalli sends for them: with a namespace, and with a digest in place of what is too
    # long. Bytes that a key must not have (spaces, control characters, above 127) go in base64.
    #
    # @api private
    class Keys
      DIGEST_MARK = ":md5:"
      # Characters of a key that has a digest in it; with a namespace dalli allows one more, for historical reasons.
      WITH_DIGEST = 249
      SEPARATOR = /\A[^a-zA-Z0-9 \x00-\x1F\x7F]\z/
      private_constant :SEPARATOR

      # @param namespace [String, Proc, nil] in front of every key
      # @param separator [String] between it and the key: one character, no letter or digit
      # @param digest [#hexdigest, nil] for keys that are too long; MD5 by itself
      def initialize(namespace: nil, separator: ":", digest: nil)
        raise ArgumentError, "a separator is one character that is no letter, digit or space: got #{separator.inspect}" unless SEPARATOR.match?(separator)
        raise ArgumentError, "a digest has a method hexdigest: got #{digest.inspect}" unless digest.nil? || digest.respond_to?(:hexdigest)

        @namespace = (namespace.nil? || namespace.is_a?(Proc)) ? namespace : namespace.to_s
        @separator = separator
        @digest = digest
      end

      # @return [String, nil] what goes in front of every key; nil: what the namespace's Proc says goes there
      def fixed_prefix
        prefix.to_s unless @namespace.is_a?(Proc)
      end

      # @param key [#to_s]
      # @return [String]
      # @raise [InvalidKey]
      def wire(key)
        key = key.to_s
        raise InvalidKey, "a key must not be empty" if key.empty?

        key = prefixed(key)
        Memcached.key_fits?(key) ? key : shortened(key)
      end

      private

      # As bytes where Ruby would not put them together: a namespace in UTF-8 and a key in binary.
      def prefixed(key)
        prefix = prefix() or return key

        Encoding.compatible?(prefix, key) ? prefix + key : prefix.b << key.b
      end

      def prefix
        return if @namespace.nil?

        "#{@namespace.is_a?(Proc) ? @namespace.call : @namespace}#{@separator}"
      end

      def shortened(key)
        ending = DIGEST_MARK + digest.hexdigest(key)
        room = WITH_DIGEST + (@namespace ? 1 : 0) - ending.length
        start = key[0, [room, 0].max]
        start = start[0...-1] until Memcached.key_fits?(start + ending) || start.empty?
        short = start + ending
        raise InvalidKey, "the digests of #{digest} are too long for a key" unless Memcached.key_fits?(short)

        short
      end

      def digest
        @digest ||= begin
          require "digest/md5"
          Digest::MD5
        end
      end
    end
  end
end

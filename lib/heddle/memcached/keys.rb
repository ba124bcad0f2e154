# frozen_string_literal: true

module Heddle
  class Memcached
    # Turns keys into the same bytes that dalli sends: with a namespace, and with a digest if the key is too long. Keys
    # with forbidden bytes (spaces, control characters, above 127) are sent in base64.
    #
    # @api private
    class Keys
      DIGEST_MARK = ":md5:"
      # The length of a key with a digest; with a namespace dalli allows one character more, for historical reasons.
      WITH_DIGEST = 249
      SEPARATOR = /\A[^a-zA-Z0-9 \x00-\x1F\x7F]\z/
      private_constant :SEPARATOR

      # @param namespace [String, Proc, nil] a prefix of every key
      # @param separator [String] between namespace and key: one character, not a letter or digit
      # @param digest [#hexdigest, nil] for keys that are too long; nil: MD5
      def initialize(namespace: nil, separator: ":", digest: nil)
        unless SEPARATOR.match?(separator)
          raise ArgumentError,
            "a separator must be one character, not a letter, digit or space: got #{separator.inspect}"
        end
        unless digest.nil? || digest.respond_to?(:hexdigest)
          raise ArgumentError, "a digest must have a method hexdigest: got #{digest.inspect}"
        end

        @namespace = (namespace.nil? || namespace.is_a?(Proc)) ? namespace : namespace.to_s
        @separator = separator
        @digest = digest
      end

      # @return [String, nil] the prefix of every key; nil if the namespace is a Proc
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

      # Joins binary copies if Ruby cannot join the Strings: a namespace in UTF-8 and a key in binary.
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

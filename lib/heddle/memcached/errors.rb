# frozen_string_literal: true

module Heddle
  class Memcached
    # A key cannot be sent: it is empty, or too long even with a digest.
    class InvalidKey < ArgumentError
      include Heddle::Error
    end

    # A value exceeds the server's limit for items. Nothing was stored; the connection stays usable.
    class ValueTooLarge < ArgumentError
      include Heddle::Error
    end

    # The serializer cannot dump a value. Nothing was sent.
    class EncodeError < ArgumentError
      include Heddle::Error
    end

    # The serializer or the compressor cannot read stored bytes, or they expand beyond the limit.
    class DecodeError < StandardError
      include Heddle::Error
    end

    # incr or decr of a value that is not a number. The connection stays usable.
    class NotANumber < TypeError
      include Heddle::Error
    end

    # The server answered SERVER_ERROR, because it is out of memory or the like. The connection stays usable.
    class ServerError < RuntimeError
      include Heddle::Error
    end

    # The server did not understand a request. The connection is closed.
    class ClientError < RuntimeError
      include Heddle::Error
    end

    # The server sent a malformed reply, or the reply to another request. The connection is closed, and no part of that
    # reply was returned.
    class ProtocolError < IOError
      include Heddle::Error
    end

    # All servers that may have a key are down; the cause is the last server's error. The client tries them again soon.
    class NoServerAvailable < IOError
      include Heddle::Error
    end

    # A module of errors that prevented a connection: no request was sent.
    module Unreachable; end

    # @!parse
    #   # For `rescue`: what the network, TLS or a limit of time may raise, whatever its class. In C.
    #   #
    #   # @api private
    #   module Failure; end

    # The server is older than memcached 1.6.18.
    class UnsupportedServer < RuntimeError
      include Heddle::Error
    end

    # The server did not accept the user's name and password.
    class AuthenticationFailed < RuntimeError
      include Heddle::Error
    end
  end
end

# frozen_string_literal: true

module Heddle
  class Memcached
    # A key that cannot be sent: empty, or too long and not to be shortened.
    class InvalidKey < ArgumentError
      include Heddle::Error
    end

    # A value that the server's limit for items does not allow. Nothing was stored; the connection is fine.
    class ValueTooLarge < ArgumentError
      include Heddle::Error
    end

    # A value that the serializer cannot make bytes of. Nothing was sent.
    class EncodeError < ArgumentError
      include Heddle::Error
    end

    # Bytes that the serializer or the compressor cannot read, or that grow beyond what is allowed.
    class DecodeError < StandardError
      include Heddle::Error
    end

    # incr and decr of what is no number. The connection is fine.
    class NotANumber < TypeError
      include Heddle::Error
    end

    # The server answered that it could not do it, being out of memory or the like. The connection is fine.
    class ServerError < RuntimeError
      include Heddle::Error
    end

    # The server did not understand a request. The connection is closed.
    class ClientError < RuntimeError
      include Heddle::Error
    end

    # The server sent what is no reply, or the reply to another request. The connection is closed, and nothing of it was
    # taken for an answer.
    class ProtocolError < IOError
      include Heddle::Error
    end

    # All servers that a key may be on are down; the cause is what the last one failed with. They are tried again soon.
    class NoServerAvailable < IOError
      include Heddle::Error
    end

    # What an error also is that kept a connection from being made: nothing was asked.
    module Unreachable; end

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

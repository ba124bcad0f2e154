# frozen_string_literal: true

module Heddle
  class Memcached
    # Errors: dalli's own where dalli is loaded.
    class DalliCompatible
      loaded = defined?(::Dalli::DalliError)
      # What all of its errors are.
      DalliError = loaded ? ::Dalli::DalliError : Class.new(RuntimeError)
      # A server does not answer, or goes away.
      NetworkError = loaded ? ::Dalli::NetworkError : Class.new(DalliError)
      # No server is left.
      RingError = loaded ? ::Dalli::RingError : Class.new(DalliError)
      # The serializer refuses a value.
      MarshalError = loaded ? ::Dalli::MarshalError : Class.new(DalliError)
      # What is stored cannot be read back.
      UnmarshalError = loaded ? ::Dalli::UnmarshalError : Class.new(DalliError)
      # A value is larger than its server takes.
      ValueOverMaxSize = loaded ? ::Dalli::ValueOverMaxSize : Class.new(DalliError)
      # A server answered that it could not do it (SERVER_ERROR).
      ServerError = (loaded && defined?(::Dalli::ServerError)) ? ::Dalli::ServerError : Class.new(DalliError)
      # What {#get} returns for a miss with +cache_nils: true+.
      NOT_FOUND = (loaded && defined?(::Dalli::NOT_FOUND)) ? ::Dalli::NOT_FOUND : Object.new.freeze
      # What needs an answer was asked for inside of {#quiet}.
      NotPermittedMultiOpError = loaded ? ::Dalli::NotPermittedMultiOpError : Class.new(DalliError)
    end
  end
end

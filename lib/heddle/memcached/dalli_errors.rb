# frozen_string_literal: true

module Heddle
  class Memcached
    # The errors: dalli's own if dalli is loaded.
    class DalliCompatible
      loaded = defined?(::Dalli::DalliError)
      # The superclass of the errors.
      DalliError = loaded ? ::Dalli::DalliError : Class.new(RuntimeError)
      # A server does not answer, or closed the connection.
      NetworkError = loaded ? ::Dalli::NetworkError : Class.new(DalliError)
      # No server is up.
      RingError = loaded ? ::Dalli::RingError : Class.new(DalliError)
      # The serializer refuses a value.
      MarshalError = loaded ? ::Dalli::MarshalError : Class.new(DalliError)
      # A stored value cannot be read.
      UnmarshalError = loaded ? ::Dalli::UnmarshalError : Class.new(DalliError)
      # A value is larger than its server's limit.
      ValueOverMaxSize = loaded ? ::Dalli::ValueOverMaxSize : Class.new(DalliError)
      # A server answered SERVER_ERROR.
      ServerError = (loaded && defined?(::Dalli::ServerError)) ? ::Dalli::ServerError : Class.new(DalliError)
      # The result of {#get} for a miss with +cache_nils: true+.
      NOT_FOUND = (loaded && defined?(::Dalli::NOT_FOUND)) ? ::Dalli::NOT_FOUND : Object.new.freeze
      # A request that needs an answer was made inside of {#quiet}.
      NotPermittedMultiOpError = loaded ? ::Dalli::NotPermittedMultiOpError : Class.new(DalliError)
    end
  end
end

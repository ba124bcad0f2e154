# frozen_string_literal: true

module Heddle
  class Limit
    # Redis could not be reached, or refused; its error is the cause.
    class Unavailable < IOError
      include Heddle::Error
    end

    # No permit became free within the timeout of {Limit#acquire}.
    class Exhausted < ::Timeout::Error
      include Heddle::Error
    end
  end
end

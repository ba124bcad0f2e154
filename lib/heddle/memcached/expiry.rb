# frozen_string_literal: true

module Heddle
  class Memcached
    # Converts times to live to memcached's form: seconds up to 30 days, beyond that a date in seconds since 1970.
    #
    # @api private
    module Expiry
      LONGEST = 30 * 24 * 60 * 60
      LAST = (1 << 31) - 1

      class << self
        # @param ttl [Numeric, Time, nil] seconds from now, rounded up, or a date; 0 and nil: for ever. A number that is
        #   a date in the future as seconds since 1970 is taken as that date
        # @return [Integer, nil]
        # @raise [ArgumentError]
        def seconds(ttl)
          return ttl if ttl.nil? || (ttl.is_a?(Integer) && ttl.between?(0, LONGEST))

          seconds = ttl.is_a?(Time) ? date(ttl) : whole(ttl)
          if seconds > LAST
            raise ArgumentError, "a ttl must not end after #{Time.at(LAST).utc}: got #{ttl.inspect}"
          end

          seconds
        end

        private

        # A ttl in the past must not become 0, which means for ever.
        def date(time)
          [time.to_i, LONGEST + 1].max
        end

        def whole(ttl)
          if ttl.is_a?(String) || !ttl.respond_to?(:ceil)
            raise ArgumentError, "a ttl must be a number of seconds: got #{ttl.inspect}"
          end
          return -1 if ttl < 0

          seconds = ttl.ceil
          now = Time.now.to_i
          (seconds > LONGEST && seconds <= now) ? now + seconds : seconds
        rescue FloatDomainError
          raise ArgumentError, "a ttl must be a number of seconds, or nil for ever: got #{ttl.inspect}"
        end
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  class Memcached
    # Times to live as memcached takes them: seconds up to 30 days, and beyond that a date in seconds since 1970.
    #
    # @api private
    module Expiry
      LONGEST = 30 * 24 * 60 * 60
      LAST = (1 << 31) - 1

      class << self
        # @param ttl [Numeric, Time, nil] seconds from now, rounded up, or a date; 0 and nil: for ever. What is a date already
        #   when taken as seconds since 1970 is left one.
        # @return [Integer, nil]
        # @raise [ArgumentError]
        def seconds(ttl)
          return ttl if ttl.nil? || (ttl.is_a?(Integer) && ttl.between?(0, LONGEST))

          seconds = ttl.is_a?(Time) ? date(ttl) : whole(ttl)
          raise ArgumentError, "memcached holds nothing until after #{Time.at(LAST).utc}: got a ttl of #{ttl.inspect}" if seconds > LAST

          seconds
        end

        private

        # One that is over must not become 0, which is for ever.
        def date(time)
          [time.to_i, LONGEST + 1].max
        end

        def whole(ttl)
          raise ArgumentError, "a ttl is a number of seconds: got #{ttl.inspect}" if ttl.is_a?(String) || !ttl.respond_to?(:ceil)
          return -1 if ttl < 0

          seconds = ttl.ceil
          now = Time.now.to_i
          (seconds > LONGEST && seconds <= now) ? now + seconds : seconds
        rescue FloatDomainError
          raise ArgumentError, "a ttl is a number of seconds, or nil for ever: got #{ttl.inspect}"
        end
      end
    end
  end
end

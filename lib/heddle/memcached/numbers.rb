# frozen_string_literal: true

module Heddle
  class Memcached
    # @api private
    module Numbers
      MOST = (1 << 64) - 1

      # @return [Integer, nil] the number, if memcached can take it
      # @raise [ArgumentError]
      def self.unsigned(name, number)
        return number if number.nil? || (number.is_a?(Integer) && number.between?(0, MOST))

        raise ArgumentError, "#{name} must be an Integer from 0 to #{MOST}: got #{number.inspect}"
      end
    end
  end
end

# frozen_string_literal: true

require "ipaddr"

module Heddle
  class Simulation
    # Checks what a program says of its world.
    module Check
      module_function

      # @return [Numeric]
      def probability(what, value)
        return value if value.is_a?(Numeric) && value.real? && value.between?(0, 1)

        raise ArgumentError, "#{what} must be a probability between 0 and 1, not #{value.inspect}"
      end

      # @return [String]
      def name(value)
        return value if value.is_a?(String)

        raise TypeError, "the name of a host must be a String, not #{value.inspect}"
      end

      # @return [String] the address as the system spells it
      def address(value)
        raise TypeError, "an address must be a String, not #{value.inspect}" unless value.is_a?(String)
        raise IPAddr::InvalidAddressError if value.include?("/")

        IPAddr.new(value).to_s
      rescue IPAddr::Error
        raise ArgumentError, "a host needs addresses of IP, not #{value.inspect}"
      end

      # @return [Task]
      def task(value)
        return value if value.is_a?(Task)

        raise TypeError, "World#interrupt needs a task, not #{value.inspect}"
      end
    end
    private_constant :Check
  end
end

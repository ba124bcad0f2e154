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

      # @param rule [String] what a TypeError says
      # @return [Object] the value
      def kind(kind, value, rule)
        return value if value.is_a?(kind)

        raise TypeError, "#{rule}, not #{value.inspect}"
      end

      # @param block [Proc, nil]
      # @return [Proc]
      def server(block) = block || raise(ArgumentError, "a server needs a block")

      # @return [String]
      def name(value) = kind(String, value, "the name of a host must be a String")

      # @return [Integer]
      def port(value) = kind(Integer, value, "a port must be an Integer")

      # @return [String] the address as the system spells it
      def address(value)
        raise IPAddr::InvalidAddressError if kind(String, value, "an address must be a String").include?("/")

        IPAddr.new(value).to_s
      rescue IPAddr::Error
        raise ArgumentError, "a host needs addresses of IP, not #{value.inspect}"
      end
    end
    private_constant :Check
  end
end

# frozen_string_literal: true

module Heddle
  # @api private Addresses as messages, which end up in logs, may show them.
  #
  #   WithoutPassword["mysql://user:pass@host/base"] # => "mysql://…@host/base"
  module WithoutPassword
    # @param address [String] also one that is none
    # @return [String]
    def self.[](address)
      address.sub(%r{\A([a-z0-9+.-]*://|//)?.*@}mi) { "#{$1}…@" }
    end
  end
  private_constant :WithoutPassword
end

# frozen_string_literal: true

module Heddle
  # @api private Removes the password from an address, for messages: these end up in logs.
  #
  #   WithoutPassword["mysql://user:pass@host/base"] # => "mysql://…@host/base"
  module WithoutPassword
    # @param address [String] also a malformed address
    # @return [String]
    def self.[](address)
      address.sub(%r{\A([a-z0-9+.-]*://|//)?.*@}mi) { "#{$1}…@" }
    end
  end
  private_constant :WithoutPassword
end

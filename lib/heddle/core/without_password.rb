# frozen_string_literal: true

module Heddle
  # Removes the password from an address, for messages: these end up in logs.
  #
  #   WithoutPassword["mysql://user:pass@host/base"] # => "mysql://…@host/base"
  #
  # @api private
  module WithoutPassword
    # The password may be between "//" and the last "@"; in a URL without an "@", behind the first colon; or behind the
    # first "?", among the options.
    #
    # @param address [String] also a malformed address
    # @return [String]
    def self.[](address)
      user = address.include?("@") ? %r{\A([a-z0-9+.-]*://|//)?.*(@)}mi : %r{(://[^/:?#]*)(:).*}m
      shown = address.sub(user) { ($2 == "@") ? "#{$1}…@" : "#{$1}:…" }
      shown.sub(/[?&#].*/m) { |options| "#{options[0]}…" }
    end
  end
  private_constant :WithoutPassword
end

# frozen_string_literal: true

require "uri"
require_relative "../core/without_password"

module Heddle
  module DB
    # Parses the URL of a database into options; see {DB.connect}. Its errors show no password.
    #
    # @api private
    module Address
      ENCODE = "write #{Databases::EXAMPLE}, and special characters of the password encoded: / as %2F, ? as %3F, " \
        "# as %23, @ as %40, % as %25"
      # RFC 3986, 3.1.
      SCHEME = /\A([A-Za-z][A-Za-z0-9+.-]*):/
      # Behind user and host, where it cannot be part of a password.
      BAD_PORT = %r{\A[^:/?#]+://[^/?#@]*@[^/?#@:]+:(?!\d+([/?#]|\z))[^/?#@]*([/?#][^@]*)?\z}
      private_constant :ENCODE, :SCHEME, :BAD_PORT

      class << self
        # @param url [String, URI]
        # @return [String] the scheme, which names the driver
        # @raise [ArgumentError]
        def scheme(url)
          unless url.is_a?(String) || url.is_a?(URI)
            raise ArgumentError,
              "the address of a database is a String such as #{Databases::EXAMPLES}, not #{of_class(url)}"
          end

          _, scheme = Databases::FORMS.find { |form, _| form.match?(url.to_s) }
          scheme || url.to_s[SCHEME, 1]&.downcase ||
            raise(ArgumentError, "#{shown(url)} has no scheme of a database: write #{Databases::EXAMPLES}")
        end

        # @param url [String, URI]
        # @return [Hash{Symbol => Object}] the options that the URL has
        # @raise [ArgumentError]
        def options(url)
          uri = parsed(url.to_s)
          raise ArgumentError, "#{shown(url)} is not the URL of a database: #{ENCODE}" if cut_short?(uri)

          parts = {host: uri.hostname, port: uri.port, user: uri.user, password: uri.password,
                   database: uri.path.to_s.delete_prefix("/")}
          parts.transform_values! { |part| part.is_a?(String) ? decode(part) : part }
          parts.merge!(URI.decode_www_form(uri.query || "").to_h.transform_keys(&:to_sym))
          parts.reject { |_, part| part.nil? || part == "" }
        end

        private

        # Ruby's own error would show the password, even as a cause.
        def parsed(text)
          URI(text)
        rescue URI::Error
          if text.match?(BAD_PORT)
            raise ArgumentError, "the port of #{shown(text)} must be a number from 1 to 65535", cause: nil
          end

          raise ArgumentError, "#{shown(text)} is not a URL: #{ENCODE}", cause: nil
        end

        # URI takes / ? and # in a password for the end of the host.
        def cut_short?(uri)
          uri.fragment || uri.opaque || uri.path.to_s.include?("@") || (uri.user.nil? && uri.query.to_s.include?("@"))
        end

        def shown(url) = WithoutPassword[url.to_s].inspect

        def of_class(url)
          url.nil? ? "nil" : "an object of the class #{url.class}"
        end

        def decode(text)
          URI.decode_www_form_component(text.gsub("+", "%2B"))
        rescue ArgumentError
          raise ArgumentError, "the URL of a database has a % without two digits behind it: #{ENCODE}", cause: nil
        end
      end
    end
    private_constant :Address
  end
end

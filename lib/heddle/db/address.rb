# frozen_string_literal: true

require "uri"
require_relative "../without_password"

module Heddle
  module DB
    # The URL of a database as options; see {DB.connect}. Its errors show no password.
    #
    # @api private
    module Address
      EXAMPLE = "mysql://user:password@host/base"
      ENCODE = "write #{EXAMPLE}, and special characters of the password encoded: / as %2F, ? as %3F, # as %23, " \
        "@ as %40, % as %25"
      private_constant :EXAMPLE, :ENCODE

      class << self
        # @param url [String, URI]
        # @return [Hash{Symbol => Object}] :scheme and options
        # @raise [ArgumentError]
        def options(url)
          unless url.is_a?(String) || url.is_a?(URI)
            raise ArgumentError, "the address of a database is a URL such as #{EXAMPLE}, not #{of_class(url)}"
          end

          uri = parsed(url.to_s)
          raise ArgumentError, "#{shown(url)} names no kind of database: #{ENCODE}" unless uri.scheme
          raise ArgumentError, "#{shown(url)} is no URL of a database: #{ENCODE}" if cut_short?(uri)

          parts = {scheme: uri.scheme, host: uri.hostname, port: uri.port, user: uri.user, password: uri.password,
                   database: uri.path.to_s.delete_prefix("/")}
          parts.transform_values! { |part| part.is_a?(String) ? decode(part) : part }
          parts.merge!(URI.decode_www_form(uri.query || "").to_h.transform_keys(&:to_sym))
          parts.reject { |_, part| part.nil? || part == "" }
        end

        private

        # Ruby's own error, as a cause too, would show the password.
        def parsed(text)
          URI(text)
        rescue URI::Error
          raise ArgumentError, "#{shown(text)} is no URL: #{ENCODE}", cause: nil
        end

        # A password with / ? or # in it ends where URI takes these for the end of the host.
        def cut_short?(uri)
          uri.fragment || uri.opaque || uri.path.to_s.include?("@") || (uri.user.nil? && uri.query.to_s.include?("@"))
        end

        # What stands behind "//" up to the last "@" may be a password; without an "@" all behind the first colon.
        def shown(url)
          text = url.to_s
          text.include?("@") ? WithoutPassword[text].inspect : text.sub(%r{(://[^/:]*):.*}m, '\1:…').inspect
        end

        def of_class(url)
          url.nil? ? "nil" : "a #{url.class}"
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

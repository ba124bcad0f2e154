# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # The options that a connection to MySQL or MariaDB has besides those of every database.
      #
      # @api private
      module OptionChecks
        class << self
          # @return [String] one of the keys of CHARSETS
          def charset(name, value)
            value = value.name if value.is_a?(Symbol)
            charsets = CHARSETS.keys
            charsets.include?(value) ? value : Options.wrong(name, "one of #{charsets.join(", ")}", value)
          end

          # OpenSSL would ask the terminal for the password of a key that has one: it gets an empty one.
          #
          # @return [OpenSSL::PKey::RSA, :ask, nil]
          def public_key(name, value)
            return :ask if value.to_s == "ask"
            return value if value.nil? || value.is_a?(OpenSSL::PKey::RSA)

            OpenSSL::PKey::RSA.new(value, "")
          rescue OpenSSL::PKey::PKeyError, TypeError, NoMethodError
            Options.wrong(name, "the server's public RSA key (PEM, without a password), :ask or nil", value)
          end
        end

        ALL = {
          host: :host, port: :port, socket: :text, user: :text, password: :text, database: :text, tls: :tls,
          booleans: :boolean, found_rows: :boolean, clear_password: :boolean,
          kill_queries: :boolean, time_zone: :time_zone,
          charset: method(:charset), server_public_key: method(:public_key)
        }.freeze
      end
      private_constant :OptionChecks
    end
  end
end

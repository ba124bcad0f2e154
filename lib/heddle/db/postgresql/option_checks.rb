# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # The options that a connection to PostgreSQL has besides those of every database.
      #
      # @api private
      module OptionChecks
        SSL_MODES = %i[disable allow prefer require verify-ca verify-full].freeze
        TARGETS = %i[any read-write read-only primary standby prefer-standby].freeze
        METHODS = %w[password md5 scram-sha-256 none].freeze
        private_constant :SSL_MODES, :TARGETS, :METHODS

        class << self
          # @return [Array<String>]
          def hosts(name, value)
            hosts = value.is_a?(String) ? value.split(",", -1) : value
            fine = hosts.is_a?(Array) && hosts.all? { |host| host.is_a?(String) && !host.match?(/[[:cntrl:]]/) }
            fine ? hosts : Options.wrong(name, "a name or an address, or several with commas between them", value)
          end

          # @return [Array<Integer, nil>] nil for the default port
          def ports(name, value)
            Array(value.is_a?(String) ? value.split(",", -1) : value).map do |port|
              Options.port(name, port) unless port.nil? || port == ""
            end
          end

          # @return [String] UTF8
          def client_encoding(name, value)
            return "UTF8" if value.to_s.match?(/\A(?:utf-?8|unicode|auto)\z/i)

            Options.wrong(name, "UTF8: text of Ruby goes and comes in it, and the server converts", value)
          end

          # @return [Symbol]
          def gssencmode(name, value)
            mode = Options.one_of(name, value, %i[disable prefer require])
            return mode unless mode == :require

            raise ArgumentError, "gssencmode: require cannot be met: there is no encryption by GSSAPI here; " \
              "use TLS (sslmode: \"verify-full\")"
          end

          # @return [Hash{String => String}] run-time parameters of the server
          def parameters(name, value)
            fine = value.is_a?(Hash) && value.all? do |key, setting|
              key.to_s.match?(/\A[A-Za-z_][\w.]*\z/) && !setting.to_s.include?("\0")
            end
            Options.wrong(name, "a Hash of names and values", value) unless fine

            value.to_h { |key, setting| [key.to_s, setting.to_s] }
          end

          # @return [Array<String>, nil] the ways to log in that are allowed, or forbidden when each begins with "!"
          def require_auth(name, value)
            ways = value.to_s.split(",").map(&:strip)
            bare = ways.map { |way| way.delete_prefix("!") }
            mixed = ways.any? { |way| way.start_with?("!") } && !ways.all? { |way| way.start_with?("!") }
            if mixed || !(bare - METHODS).empty?
              Options.wrong(name, "some of #{METHODS.join(", ")} with commas between them, " \
                "all or none behind a !", value)
            end
            ways.empty? ? nil : ways
          end

          private

          def word(*words)
            ->(name, value) { Options.one_of(name, value.to_s.tr("_", "-"), words) }
          end
        end

        ALL = {
          host: method(:hosts), hostaddr: method(:hosts), port: method(:ports), socket: :text, user: :text,
          password: :text, database: :text, passfile: :text, tls: :tls, sslmode: word(*SSL_MODES),
          sslrootcert: :text, sslcert: :text, sslkey: :text,
          sslpassword: :text, sslnegotiation: word(:postgres, :direct),
          channel_binding: word(:disable, :prefer, :require),
          require_auth: method(:require_auth), target_session_attrs: word(*TARGETS),
          load_balance_hosts: word(:disable, :random), application_name: :text, fallback_application_name: :text,
          client_encoding: method(:client_encoding), gssencmode: method(:gssencmode), options: :text,
          search_path: :text,
          parameters: method(:parameters), time_zone: :time_zone, kill_queries: :boolean, server_deadlines: :boolean
        }.freeze
      end
      private_constant :OptionChecks
    end
  end
end

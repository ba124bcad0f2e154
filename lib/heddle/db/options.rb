# frozen_string_literal: true

module Heddle
  module DB
    # The options of {DB.connect} and {Pool}, given by keywords or, as Strings, by a URL: what they stand for, or an
    # ArgumentError that names the option and what it takes. A value that may be a secret is never shown.
    #
    # @api private
    module Options
      BOOLEANS = {"true" => true, "1" => true, "yes" => true, "on" => true,
                  "false" => false, "0" => false, "no" => false, "off" => false}.freeze
      SECRETS = %i[password tls server_public_key].freeze

      # The check of each option.
      KINDS = {
        host: :host, port: :port, socket: :text, user: :text, password: :text, database: :text,
        timeout: :seconds, connect_timeout: :seconds, tls: :tls, booleans: :boolean, clear_password: :boolean,
        kill_queries: :boolean, time_zone: :time_zone, charset: :charset, server_public_key: :public_key,
        statement_cache: :statement_cache, statement_cache_size: :count
      }.freeze
      private_constant :BOOLEANS, :SECRETS, :KINDS

      class << self
        # @param options [Hash{Symbol => Object}]
        # @return [Hash{Symbol => Object}]
        # @raise [ArgumentError]
        def checked(options)
          unknown = options.keys - KINDS.keys
          unless unknown.empty?
            raise ArgumentError, "unknown options: #{unknown.join(", ")}; there are #{KINDS.keys.join(", ")}"
          end

          options.to_h { |name, value| [name, send(KINDS.fetch(name), name, value)] }
        end

        # @return [Float, nil] a span of time
        def seconds(name, value)
          number = value.is_a?(String) ? Float(value, exception: false) : value
          return number if number.nil? && value.nil?
          return number.to_f if number.is_a?(Numeric) && number.real? && number > 0

          wrong(name, "a number of seconds above 0, or nil", value)
        end

        # @return [Integer]
        def count(name, value)
          number = whole(value)
          number&.positive? ? number : wrong(name, "a whole number above 0", value)
        end

        # @return [Boolean]
        def boolean(name, value)
          BOOLEANS.fetch(value.to_s) { value.nil? ? false : wrong(name, "true or false", value) }
        end

        private

        def whole(value)
          number = value.is_a?(String) ? Integer(value, 10, exception: false) : value
          number if number.is_a?(Integer)
        end

        def port(name, value)
          number = whole(value)
          number&.between?(1, 65_535) ? number : wrong(name, "a number from 1 to 65535", value)
        end

        def text(name, value)
          value = value.name if value.is_a?(Symbol)
          return value if value.nil? || (value.is_a?(String) && !value.include?("\0"))

          wrong(name, "a String without a NUL", value)
        end

        def host(name, value)
          return value if value.is_a?(String) && !value.empty? && !value.match?(/[ [:cntrl:]]/)

          wrong(name, "a name or an address", value)
        end

        def tls(name, value)
          return value if value.is_a?(Hash) || value.is_a?(OpenSSL::SSL::SSLContext)
          return false if value.nil?

          BOOLEANS.fetch(value.to_s) { wrong(name, "true, false, a Hash or an OpenSSL::SSL::SSLContext", value) }
        end

        def time_zone(name, value)
          one_of(name, value, %i[utc local])
        end

        def statement_cache(name, value)
          one_of(name, value, StatementCache::MODES)
        end

        def charset(name, value)
          value = value.name if value.is_a?(Symbol)
          charsets = MySQL::CHARSETS.keys
          charsets.include?(value) ? value : wrong(name, "one of #{charsets.join(", ")}", value)
        end

        # OpenSSL would ask the terminal for the password of a key that has one: it gets an empty one.
        def public_key(name, value)
          return :ask if value.to_s == "ask"
          return value if value.nil? || value.is_a?(OpenSSL::PKey::RSA)

          OpenSSL::PKey::RSA.new(value, "")
        rescue OpenSSL::PKey::PKeyError, TypeError, NoMethodError
          wrong(name, "the server's public RSA key (PEM, without a password), :ask or nil", value)
        end

        def one_of(name, value, words)
          found = words.find { |word| word.name == value.to_s }
          found || wrong(name, "one of #{words.map(&:inspect).join(", ")}", value)
        end

        def wrong(name, expected, value)
          shown = SECRETS.include?(name) ? "a #{value.class}" : value.inspect
          raise ArgumentError, "#{name}: is #{expected}, not #{shown}", cause: nil
        end
      end
    end
    private_constant :Options
  end
end

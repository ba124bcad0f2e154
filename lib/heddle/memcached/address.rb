# frozen_string_literal: true

require_relative "../core/without_password"

module Heddle
  class Memcached
    # A server's address and its weight, which is its share of the keys. Has the same forms as in dalli: "host",
    # "host:port", "host:port:weight", "[::1]:11211", "/path/of/socket", "/path:weight",
    # "memcached://user:password@host:port".
    #
    # @api private
    class Address
      PORT = 11_211
      VARIABLE = "MEMCACHE_SERVERS"
      PLAIN = /\A(?:\[(?<v6>[\h:.]+)\]|(?<host>[^:\s]+))(?::(?<first>\d+))?(?::(?<second>\d+))?\z/
      private_constant :PLAIN

      class << self
        # @param servers [String, Array<String>, nil] with commas between several; nil: the servers in MEMCACHE_SERVERS,
        #   or 127.0.0.1
        # @return [Array<Address>]
        # @raise [ArgumentError]
        def all(servers)
          servers = ENV.fetch(VARIABLE, "127.0.0.1:#{PORT}") if servers.nil?
          texts = Array(servers)
          unless texts.all?(String)
            raise ArgumentError,
              "servers are Strings such as \"127.0.0.1:11211\", not objects of the class " \
              "#{texts.grep_v(String).first.class}"
          end

          addresses = texts.flat_map { |text| text.split(",") }.map(&:strip).reject(&:empty?).map { |text| parse(text) }
          raise ArgumentError, "no server in #{servers.inspect}" if addresses.empty?

          addresses
        end

        private

        def parse(text)
          return from_uri(text) if text.start_with?("memcached://")

          match = PLAIN.match(text) or
            raise ArgumentError, "#{WithoutPassword[text].inspect} is not the address of a server: " \
              "write host:port, host:port:weight or /path/of/socket"
          host = match[:v6] || match[:host]
          if host.start_with?("/")
            raise ArgumentError, "#{text.inspect}: a socket may have a weight, but no port" if match[:second]

            return new(path: host, weight: weight(match[:first], text))
          end
          new(host: host, port: match[:first]&.to_i || PORT, weight: weight(match[:second], text))
        end

        def from_uri(text)
          require "uri"
          uri = URI.parse(text)
          # URI takes / ? and # in a password for the end of the host.
          raise URI::InvalidURIError if uri.fragment || uri.opaque || "#{uri.path}?#{uri.query}".include?("@")
          raise URI::InvalidURIError if uri.hostname.to_s.empty? # nil or "", as its version has it

          user, password = [uri.user, uri.password].map { |part| part&.gsub(/%(\h\h)/) { $1.hex.chr } }
          new(host: uri.hostname, port: uri.port || PORT, user: user, password: password)
        rescue URI::Error # whose message, as a cause too, would show the password
          raise ArgumentError, "#{WithoutPassword[text].inspect} is not the address of a server: " \
            "write memcached://user:password@host:port, and percent-encode the password: " \
            "/ as %2F, ? as %3F, # as %23, @ as %40, % as %25", cause: nil
        end

        def weight(text, address)
          weight = text ? Integer(text, 10) : 1
          raise ArgumentError, "#{address.inspect}: a weight must be at least 1" if weight < 1

          weight
        end
      end

      # @return [String, nil]
      attr_reader :host, :path, :user, :password
      # @return [Integer, nil]
      attr_reader :port
      # @return [Integer]
      attr_reader :weight

      def initialize(host: nil, port: nil, path: nil, weight: 1, user: nil, password: nil)
        @host = host
        @port = port
        @path = path
        @weight = weight
        @user = user
        @password = password
      end

      # @return [String] the server's name in dalli's ring
      def name
        @path || "#{@host}:#{@port}"
      end

      # @return [String] without the password: Ruby's error messages show this text
      def inspect
        "#<#{self.class} #{name}>"
      end
    end
  end
end

# frozen_string_literal: true

require_relative "../without_password"

module Heddle
  class Memcached
    # Where a server is and how much of the keys it gets, read from what dalli takes too: "host", "host:port",
    # "host:port:weight", "[::1]:11211", "/path/of/socket", "/path:weight", "memcached://user:password@host:port".
    #
    # @api private
    class Address
      PORT = 11_211
      VARIABLE = "MEMCACHE_SERVERS"
      PLAIN = /\A(?:\[(?<v6>[\h:.]+)\]|(?<host>[^:\s]+))(?::(?<first>\d+))?(?::(?<second>\d+))?\z/
      private_constant :PLAIN

      class << self
        # @param servers [String, Array<String>, nil] with commas between several; nil: those of MEMCACHE_SERVERS, or the one on this machine
        # @return [Array<Address>]
        # @raise [ArgumentError]
        def all(servers)
          servers = ENV.fetch(VARIABLE, "127.0.0.1:#{PORT}") if servers.nil?
          texts = Array(servers)
          raise ArgumentError, "servers are Strings such as \"127.0.0.1:11211\": got a #{texts.grep_v(String).first.class}" unless texts.all?(String)

          addresses = texts.flat_map { |text| text.split(",") }.map(&:strip).reject(&:empty?).map { |text| parse(text) }
          raise ArgumentError, "there is no server in #{servers.inspect}" if addresses.empty?

          addresses
        end

        private

        def parse(text)
          return from_uri(text) if text.start_with?("memcached://")

          match = PLAIN.match(text) or raise ArgumentError, "#{WithoutPassword[text].inspect} is no address of a server: write host:port, host:port:weight or /path/of/socket"
          host = match[:v6] || match[:host]
          if host.start_with?("/")
            raise ArgumentError, "#{text.inspect}: a socket has a weight at most, and no port" if match[:second]

            return new(path: host, weight: weight(match[:first], text))
          end
          new(host: host, port: match[:first]&.to_i || PORT, weight: weight(match[:second], text))
        end

        def from_uri(text)
          require "uri"
          uri = URI.parse(text)
          # A password with / ? or # in it ends where URI takes these for the end of the host.
          raise URI::InvalidURIError if uri.fragment || uri.opaque || "#{uri.path}?#{uri.query}".include?("@")
          raise URI::InvalidURIError if uri.hostname.to_s.empty? # nil or "", as its version has it

          user, password = [uri.user, uri.password].map { |part| part&.gsub(/%(\h\h)/) { $1.hex.chr } }
          new(host: uri.hostname, port: uri.port || PORT, user: user, password: password)
        rescue URI::Error # whose message, as a cause too, would show the password
          raise ArgumentError, "#{WithoutPassword[text].inspect} is no address of a server: write memcached://user:password@host:port, and special " \
            "characters of the password encoded: / as %2F, ? as %3F, # as %23, @ as %40, % as %25", cause: nil
        end

        def weight(text, address)
          weight = text ? Integer(text, 10) : 1
          raise ArgumentError, "#{address.inspect}: a weight is at least 1" if weight < 1

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

      # @return [String] as dalli's ring names it
      def name
        @path || "#{@host}:#{@port}"
      end

      # @return [String] without the password, which errors of Ruby would show
      def inspect
        "#<#{self.class} #{name}>"
      end
    end
  end
end

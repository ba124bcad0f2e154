# frozen_string_literal: true

require "heddle/lab"
require_relative "../servers"

module ClientFuzz
  # The servers, and a proxy before each of them.
  class Backends
    # A server, as a client reaches it: through a proxy.
    Place = Struct.new(:server, :proxy) do
      def host = "127.0.0.1"

      def port = proxy.port
    end

    attr_reader :mariadb, :postgresql, :memcached, :http, :https, :authority

    # @param restarts [Boolean] whether {#restart} will be called
    def initialize(restarts: false)
      @mariadb = place { ::Servers.mariadb }
      @postgresql = place { ::Servers.postgresql }
      @memcached = place { restarts ? ::Servers::Memcached.new.start : ::Servers.memcached }
      @restarts = restarts && @memcached
      start_http
    end

    def proxies = [@mariadb, @postgresql, @memcached, @http, @https].compact.map(&:proxy)

    # Kills memcached, and starts it on the same port.
    def restart
      return unless @restarts

      port = @memcached.server.port
      @memcached.server.stop
      @memcached.server = ::Servers::Memcached.new(port: port).start
    end

    def stop
      @memcached.server.stop if @restarts
      proxies.each(&:stop)
      @input&.close
      Process.wait(@pid) if @pid
    end

    private

    # @return [Place, nil] nil if this machine does not have the server
    def place
      server = yield
      Place.new(server, Heddle::Lab::ShapingProxy.start("#{server.host}:#{server.port}"))
    rescue ::Servers::Unavailable, ::Servers::StartFailed => error
      puts "without #{error.message.lines.first}"
      nil
    end

    def start_http
      input, @input = IO.pipe
      output, out = IO.pipe
      @pid = Process.spawn(RbConfig.ruby, "#{__dir__}/http_server.rb", in: input, out: out)
      [input, out].each(&:close)
      plain, tls, @authority = output.gets.split
      output.close
      @http, @https = [plain, tls].map { |port| Place.new(nil, Heddle::Lab::ShapingProxy.start("127.0.0.1:#{port}")) }
    end
  end
end

# frozen_string_literal: true

require "heddle"
require "support/servers"
require "support/stream_helpers"

# Helpers that tests of Heddle::Memcached share: real servers, one of each kind a process, and the ways to wait.
module MemcachedHelpers
  include StreamHelpers

  # How a client reaches its server.
  WAYS = %i[tcp unix tls].freeze

  @servers = {}

  class << self
    # @param way [:tcp, :unix, :tls]
    def server(way)
      @servers[way] ||= begin
        options = {tcp: {}, unix: {socket: true}, tls: {tls: Certificates.server}}.fetch(way)
        server = Servers::Memcached.new(**options).start
        Minitest.after_run { server.stop }
        server
      end
    end
  end

  Certificates = StreamHelpers::Certificates

  def setup
    super
    @clients = []
  end

  def teardown
    @clients.each(&:close)
    super
  end

  def real_server(way = :tcp)
    MemcachedHelpers.server(way)
  end

  # Loads dalli, without its log.
  def require_dalli
    require "dalli"
    require "logger"
    Dalli.logger = Logger.new(nil)
  end

  # A client with a key namespace of the test's own, closed at the test's end.
  def client(way = :tcp, **options)
    server = real_server(way)
    options = {tls: {ca_file: Certificates.authority_file}}.merge(options) if way == :tls
    client_of((way == :unix) ? server.path : "#{server.host}:#{server.port}",
      namespace: "#{name}-#{self.class.object_id}", **options)
  end

  def client_of(*servers, **options)
    Heddle::Memcached.new(servers, timeout: stretched(10), **options).tap { |cache| @clients << cache }
  end

  # The connections to a client's servers: [all, idle].
  def connections(cache)
    servers = cache.instance_variable_get(:@servers)
    [servers.sum(&:open_connections), servers.sum(&:idle_connections)]
  end

  # Waits until every connection is back in the pool, and in no exchange.
  def assert_at_rest(cache)
    all, idle = connections(cache)
    assert_equal all, idle, "connections that were not given back"
  end
end

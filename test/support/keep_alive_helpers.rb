# frozen_string_literal: true

require "support/keeping_server"
require "support/loop_helpers"
require "heddle/net_http"
require "heddle"

# For tests of persistent connections: switches keep_alive on, and makes servers and sessions.
module KeepAliveHelpers
  include LoopHelpers

  OK = KeepingServer::OK

  def setup
    Heddle::NetHTTP.enable
    Heddle::NetHTTP.keep_alive
    @before = Heddle::NetHTTP.stats
    @servers = []
  end

  def teardown
    Heddle::NetHTTP.keep_alive(false)
    Heddle::NetHTTP.enable
    @servers.each(&:close)
  end

  private

  def serve(**options, &answer) = KeepingServer.new(**options, &answer).tap { |server| @servers << server }

  def start(server, &block) = Net::HTTP.start("127.0.0.1", server.port, &block)

  def get(server) = start(server) { |http| http.get("/") }

  def post(server) = start(server) { |http| http.post("/", "a=b").body }

  def uri(server) = URI("http://127.0.0.1:#{server.port}/")

  def assert_counted(**wanted)
    now = Heddle::NetHTTP.stats
    assert_equal wanted, wanted.to_h { |name, _| [name, now[name] - @before[name]] }
  end

  # Prepends for the block's time.
  def replaced(klass, mod)
    klass.singleton_class.prepend(mod)
    yield
  ensure
    mod.instance_methods(false).each { |name| mod.send(:remove_method, name) }
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/servers"
require "support/shaping_proxy"
require "net/http"

# Connections that break at every place of a reply, under unmodified clients in tasks: the waiting task gets the error
# that Ruby raises without Heddle, the others get their answers, and the next request succeeds.
class BrokenConnectionsTest < Minitest::Test
  include LoopHelpers
  include ShapingProxies

  mode :fiber

  BYTES = 100_000
  # Where in a reply it breaks, in bytes: before it, in the status line, in the headers, in the body.
  PLACES = [0, 5, 30, 50_000].freeze
  OTHERS = 10

  # A client of one kind with a server: it connects, and reads what the block is told is right.
  HTTPClient = Struct.new(:port) do
    def self.server = Servers.load

    def initialize(port)
      super
      @http = Net::HTTP.new("127.0.0.1", port)
      @http.max_retries = 0
      @http.start
    end

    def read
      body = @http.get("/b/#{BYTES}").body
      raise EOFError, "a body that is cut off, which Net::HTTP returns as it is" if body.bytesize < BYTES

      body.b == Heddle::Lab::LoadServer.body(BYTES)
    end

    # As without Heddle: a header that is cut off is no header.
    def self.errors(ending) = (ending == :reset_at) ? [Errno::ECONNRESET] : [EOFError, Net::HTTPBadResponse]
  end

  RedisReader = Struct.new(:port) do
    def self.server
      require "redis_client"
      Servers.redis.tap do |server|
        RedisClient.new(host: server.host, port: server.port).call("SET", "faults", "x" * BYTES)
      end
    end

    def initialize(port)
      super
      @redis = RedisClient.new(host: "127.0.0.1", port: port, reconnect_attempts: 0)
      @redis.call("PING")
    end

    def read = @redis.call("GET", "faults") == "x" * BYTES

    def self.errors(_) = [RedisClient::ConnectionError]
  end

  {http: HTTPClient, redis: RedisReader}.each do |name, client|
    %i[reset_at close_at].each do |ending|
      define_method(:"test_#{ending.to_s.delete_suffix("_at")}_in_every_place_under_#{name}") do
        breaks_in_every_place(client, ending)
      end
    end
  end

  def test_a_server_that_ends_its_side_and_still_reads
    heard = Thread::Queue.new
    with_server(->(connection) {
      connection.write("bye").then { connection.close_write }.then { heard << connection.read }
    }) do |port|
      proxy = shaping_proxy(Struct.new(:host, :port).new("127.0.0.1", port))
      Heddle.run do
        socket = TCPSocket.new("127.0.0.1", proxy.port)
        assert_equal "bye", socket.read
        socket.write("still there?")
        socket.close
      end
      assert_equal "still there?", heard.pop
    end
  end

  def test_a_client_that_ends_its_side_gets_its_answer
    with_server(->(connection) { connection.write(connection.read.upcase) }) do |port|
      proxy = shaping_proxy(Struct.new(:host, :port).new("127.0.0.1", port), delay: 0.05)
      Heddle.run do
        answers = Array.new(OTHERS) do |i|
          Heddle.spawn do
            TCPSocket.open("127.0.0.1", proxy.port) do |socket|
              socket.write("question #{i}")
              socket.close_write
              socket.read
            end
          end
        end
        assert_equal Array.new(OTHERS) { |i| "QUESTION #{i}" }, answers.map(&:value)
      end
    end
  end

  # The proxy resets everything while a hundred tasks wait for the first byte of their answer.
  def test_all_connections_reset_at_once
    proxy = shaping_proxy(Servers.load)
    Heddle.run do
      tasks = Array.new(100) do
        Heddle.spawn do
          Net::HTTP.start("127.0.0.1", proxy.port, max_retries: 0) { |http| http.get("/60000") }
        rescue SystemCallError, EOFError => error
          error.class
        end
      end
      wait_until(what: "a hundred requests") { proxy.stats["request_bytes"] > 100 * 60 }
      proxy.reset
      assert_within(5, remeasure: 0) { assert_equal [Errno::ECONNRESET], tasks.map(&:value).uniq }
      assert_equal "done", Net::HTTP.start("127.0.0.1", proxy.port) { |http| http.get("/0").body }
    end
    wait_until { proxy.stats["open"].zero? }
  end

  private

  def breaks_in_every_place(client, ending)
    server = client.server
    bad, good = shaping_proxy(server), shaping_proxy(server, delay: 0.1)
    before = descriptor_count
    Heddle.run do
      others = Array.new(OTHERS) { Heddle.spawn { client.new(good.port).then { |other| Array.new(3) { other.read } } } }
      broken = client.new(bad.port)
      PLACES.each do |place|
        bad.shape(ending => place)
        error = assert_raises(*client.errors(ending), "#{ending} #{place}") { Heddle.deadline(5) { broken.read } }
        refute_kind_of Timeout::Error, error
        bad.pass
        assert broken.read, "the request after #{ending} #{place}"
      end
      assert_equal [[true] * 3] * OTHERS, others.map(&:value)
    end
    GC.start
    assert_operator descriptor_count, :<=, before + OTHERS + 8 # what clients keep open, but nothing for each fault
  end
end

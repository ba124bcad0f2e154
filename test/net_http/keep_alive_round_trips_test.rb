# frozen_string_literal: true

require "test_helper"
require "support/certificates"
require "support/keeping_server"
require "support/loop_helpers"
require "heddle/net_http"
require "heddle"

runs_on rubies: :ends

# How often a session waits for a server that is far away: each connect, and each time that the client has to read
# before it goes on writing, is a round trip.
class KeepAliveRoundTripsTest < Minitest::Test
  include LoopHelpers

  mode :thread

  DELAY = 0.02

  def setup
    Heddle::NetHTTP.enable
    @lock = Mutex.new
    @trips = @open = 0
  end

  def teardown
    Heddle::NetHTTP.keep_alive(false)
    @server&.close
  end

  def test_plain
    @server = KeepingServer.new
    assert_equal [2, 2, 1], trips { |port| Net::HTTP.new("127.0.0.1", port, nil) }
  end

  {TLS1_3: 3, TLS1_2: 4}.each do |version, most|
    define_method(:"test_#{version}") do
      @server = KeepingServer.new(context: Certificates.context)
      counts = trips do |port|
        Net::HTTP.new("localhost", port, nil).tap do |http|
          http.ipaddr = "127.0.0.1"
          http.use_ssl = true
          http.ca_file = Certificates.authority_file
          http.max_version = version
        end
      end
      assert_equal [most, most, 1], counts
    end
  end

  private

  # Of a session by stock Net::HTTP, the first one with persistent connections, and a later one. The fewest of three,
  # since a busy machine may write a second time only after the answer to the first has come.
  def trips(&session)
    with_server(->(client) { relay(client) }) do |port|
      counts = Array.new(3) do
        %i[stock first later].map do |time|
          Heddle::NetHTTP.keep_alive if time == :first
          wait_until { @lock.synchronize { @open.zero? } } unless time == :later # a close_notify would count
          @lock.synchronize { @trips = 0 }
          session.call(port).start { |http| assert_equal "ok", http.get("/").body }
          @lock.synchronize { @trips }
        end.tap { Heddle::NetHTTP.keep_alive(false) }
      end
      counts.transpose.map(&:min)
    end
  end

  def relay(client)
    @lock.synchronize { @open += 1 }
    trip
    server = TCPSocket.new("127.0.0.1", @server.port)
    answered = true
    up = Thread.new do
      loop do
        bytes = client.readpartial(16_384)
        trip if answered
        answered = false
        server.write(bytes)
      end
    rescue SystemCallError, IOError
      server.close_write
    end
    loop do
      bytes = server.readpartial(16_384)
      sleep DELAY
      answered = true
      client.write(bytes)
    end
  rescue SystemCallError, IOError
    nil
  ensure
    up&.kill
    server&.close
    @lock.synchronize { @open -= 1 }
  end

  def trip = @lock.synchronize { @trips += 1 }
end

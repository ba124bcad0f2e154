# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "heddle"
require "json"
require "logger"
require "set" # httpx 1.9 expects it to be loaded, as it is from Ruby 3.2 on

# What Heddle.connect_filter does not see, as doc/limits.md says: C libraries that have sockets of their own. And
# libraries on Ruby's sockets, which it does see.
class ConnectFilterTest < Minitest::Test
  include LoopHelpers

  AROUND = {
    "pg" => ->(port) { PG.connect(host: "127.0.0.1", port: port, user: "me", connect_timeout: 5) },
    "mysql2" => ->(port) { Mysql2::Client.new(host: "127.0.0.1", port: port, connect_timeout: 5) },
    "curb" => ->(port) { Curl.get("http://127.0.0.1:#{port}/") },
    "typhoeus" => ->(port) { Typhoeus.get("http://127.0.0.1:#{port}/") }
  }.freeze

  SEEN = {
    "trilogy" => ->(port) { Trilogy.new(host: "127.0.0.1", port: port, connect_timeout: 5) },
    "excon" => ->(port) { Excon.get("http://localhost:#{port}/") },
    "http" => ->(port) { HTTP.get("http://localhost:#{port}/").to_s },
    "httpx" => ->(port) { HTTPX.get("http://localhost:#{port}/").raise_for_status },
    "faraday" => ->(port) { Faraday.get("http://localhost:#{port}/") },
    "net/http/persistent" => ->(port) { Net::HTTP::Persistent.new.request("http://localhost:#{port}/") },
    "redis" => ->(port) { Redis.new(host: "localhost", port: port, reconnect_attempts: 0).ping },
    "dalli" => lambda do |port|
      Dalli.logger = Logger.new(nil)
      Dalli::Client.new("localhost:#{port}", socket_failure_delay: nil, protocol: :meta, serializer: JSON).get("key")
    end,
    "open-uri" => ->(port) { URI.parse("http://localhost:#{port}/").open }
  }.freeze

  AROUND.merge(SEEN).each do |name, connect|
    define_method(:"test_#{name.gsub(/\W/, "_")}") do
      require name
      accepted = asked = 0
      with_server(->(connection) { (accepted += 1) && connection.close }) do |port|
        2.times do |in_task|
          Heddle.connect_filter(->(*) { (asked += 1) && false }) do
            in_task.zero? ? connect.call(port) : Heddle.run { connect.call(port) }
          rescue => error
            error
          end
        end
        if SEEN.key?(name)
          assert_equal [0, true], [accepted, asked >= 2]
        else
          wait_until { accepted >= 2 }
          assert_equal 0, asked
        end
      end
    end
  end

  # Datagrams that are sent without a connect.
  def test_datagrams
    receiver = UDPSocket.new
    receiver.bind("127.0.0.1", 0)
    Heddle.connect_filter(Heddle::ConnectFilter::PUBLIC) do
      UDPSocket.new.send("a datagram", 0, "127.0.0.1", receiver.addr[1])
      Socket.new(:INET, :DGRAM).send("a datagram", 0, Socket.sockaddr_in(receiver.addr[1], "127.0.0.1"))
    end
    assert_equal ["a datagram"] * 2, Array.new(2) { receiver.recv(99) }
  end
end

# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/shaping_proxy"
require "json"

# memcached answers at once: a proxy in front of it adds the delay.
class UnmodifiedDalliTest < UnmodifiedTestCase
  include ShapingProxies

  DELAY = 0.2

  def setup
    super
    require "dalli"
    @server = server(:memcached)
    @proxy = shaping_proxy(@server, delay: DELAY)
    @expected = Array.new(COUNT) { |i| {"number" => i, "text" => "x" * 10_000} }
    direct = connect(@server.port)
    @expected.each_with_index { |value, i| direct.set("key:#{i}", value) }
    direct.close
  end

  # A new client asks for the server's version before its first request: two delays.
  on_each_host "twenty gets from 200 ms away" do |host|
    assert_at_once(host, each: 2 * DELAY, under: 1.5, expected: @expected) { |i| get(i) }
  end

  def test_the_same_gets_in_a_row
    assert_in_a_row(each: 2 * DELAY, expected: @expected) { |i| get(i) }
  end

  private

  def get(i)
    cache = connect(@proxy.port)
    cache.get("key:#{i}")
  ensure
    cache&.close
  end

  def connect(port)
    Dalli::Client.new("localhost:#{port}", socket_timeout: 5, protocol: :meta, serializer: JSON)
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Which of Ruby's ways to a connection ask the scheduler for addresses. Where this test's answer for TCPSocket changes,
# doc/limits.md has to.
class HappyEyeballsTest < Minitest::Test
  include LoopHelpers

  # Notes what it is asked.
  module Witness
    def address_resolve(host)
      (@asked ||= []) << host
      super
    end

    def asked = @asked || []
  end

  # Since 3.4 TCPSocket.new has its own look-up and connect in C (Happy Eyeballs, version 2), which no hook sees.
  def test_tcp_socket_new_with_a_name
    asked = asked_by { |port| TCPSocket.new("localhost", port).close }
    if ruby_at_least?("3.4") && Socket.respond_to?(:tcp_fast_fallback) && Socket.tcp_fast_fallback
      assert_empty asked, "TCPSocket.new asks the scheduler now: doc/limits.md says that it does not"
    else
      assert_equal ["localhost"], asked
    end
  end

  def test_tcp_socket_new_without_fast_fallback
    skip "TCPSocket.new has had no option fast_fallback before Ruby 3.4" unless ruby_at_least?("3.4")
    assert_equal ["localhost"], asked_by { |port| TCPSocket.new("localhost", port, fast_fallback: false).close }
  end

  def test_addrinfo
    assert_equal ["localhost"], asked_by { |port| Addrinfo.getaddrinfo("localhost", port, nil, :STREAM) }
  end

  def test_addresses_are_not_asked_for
    assert_empty asked_by { |port| TCPSocket.new("127.0.0.1", port).close } - ["127.0.0.1"]
  end

  private

  def asked_by
    server = TCPServer.new("127.0.0.1", 0)
    Heddle.run do
      Fiber.scheduler.singleton_class.prepend(Witness)
      yield server.addr[1]
      Fiber.scheduler.asked
    end
  ensure
    server&.close
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Ports by service name, where the scheduler looks up the host.
class ServiceNamesTest < Minitest::Test
  include LoopHelpers

  def test_services_have_their_numbers
    Heddle.run do
      assert_equal [80], Addrinfo.getaddrinfo("localhost", "http", nil, :STREAM).map(&:ip_port).uniq
      assert_equal 53, Addrinfo.tcp("localhost", "domain").ip_port
      assert_equal 53, Addrinfo.udp("localhost", "domain").ip_port
      assert_equal [443], Socket.getaddrinfo("localhost", "https", nil, :STREAM).map { |address| address[1] }.uniq
      assert_equal 80, Addrinfo.foreach("localhost", "http") { |address| break address.ip_port }
    end
  end

  def test_an_unknown_service_is_left_to_ruby
    Heddle.run do
      assert_equal 8080, Addrinfo.tcp("localhost", "8080").ip_port
      assert_equal 8080, Addrinfo.tcp("localhost", 8080).ip_port
      assert_equal 0, Addrinfo.getaddrinfo("localhost", nil, nil, :STREAM).first.ip_port
      assert_raises(SocketError) { Addrinfo.tcp("localhost", "no-such-service") }
      assert_raises(TypeError) { Addrinfo.tcp("localhost", Object.new) }
    end
  end

  def test_outside_of_a_run_ruby_looks_up_itself
    assert_equal 80, Addrinfo.tcp("localhost", "http").ip_port
  end

  def test_without_the_patch_ruby_looks_up_itself
    out = in_child(<<~RUBY, env: {"HEDDLE_COMPAT" => "off"}).out
      Heddle.run { puts((Addrinfo.tcp("localhost", "http").ip_port rescue $!.message)) }
    RUBY
    refute_equal "80\n", out, "Ruby #{RUBY_VERSION} does not have the defect: the patch need not be loaded"
  end
end

# frozen_string_literal: true

require "test_helper"
require "heddle/lab/dead_network"
require "open3"
require "socket"

class DeadNetworkTest < Minitest::Test
  ZONE = {
    "two.test" => {"a" => %w[192.0.2.1 192.0.2.2]},
    "slow.test" => {"a" => ["127.0.0.1"], "aaaa" => ["2001:db8::1"], "aaaa_delay" => 0.3},
    "failing.test" => {"failure" => "servfail"},
    "192.0.2.9" => {"ptr" => "nine.test"}
  }.freeze

  def setup
    reason = Heddle::Lab::DeadNetwork.unavailable
    skip "no network of our own: #{reason}" if reason
  end

  def test_names_resolve_as_in_the_zone
    network = Heddle::Lab::DeadNetwork.new(zone: ZONE)
    assert_equal %w[192.0.2.1 192.0.2.2], addresses("two.test", network)
    assert_equal %w[2001:db8::1 127.0.0.1].sort, addresses("slow.test", network).sort
    assert_equal [], addresses("nobody.test", network)
    assert_equal [], addresses("failing.test", network)
    assert_equal "nine.test", run_inside('print Addrinfo.tcp("192.0.2.9", 80).getnameinfo[0]', network)
    assert_includes network.questions, "aaaa two.test"
    assert_includes network.questions, "ptr 9.2.0.192.in-addr.arpa"
  end

  def test_an_answer_can_be_slow
    network = Heddle::Lab::DeadNetwork.new(zone: ZONE)
    took = run_inside(<<~RUBY, network).to_f
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      Addrinfo.getaddrinfo("slow.test", 80)
      print Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
    RUBY
    assert_operator took, :>, 0.29
  end

  def test_the_hosts_file_comes_first
    network = Heddle::Lab::DeadNetwork.new(zone: ZONE, hosts: {"127.0.0.7" => ["seven"], "127.0.0.1" => ["me"]})
    assert_equal ["127.0.0.7"], addresses("seven", network)
    assert_equal ["127.0.0.1"], addresses("localhost", network)
    assert_equal ["127.0.0.1"], addresses("me", network)
    assert_empty network.questions
  end

  def test_addresses_that_do_not_answer
    network = Heddle::Lab::DeadNetwork.new
    %w[192.0.2.1 2001:db8::1].each do |address|
      text = run_inside("print Socket.tcp('#{address}', 80, connect_timeout: 0.2) rescue print $!.class", network)
      assert_equal "Errno::ETIMEDOUT", text
    end
  end

  def test_own_addresses_refuse_closed_ports
    network = Heddle::Lab::DeadNetwork.new
    Heddle::Lab::DeadNetwork::OWN_ADDRESSES.each_value do |address|
      text = run_inside("print Socket.tcp('#{address}', 1, connect_timeout: 1) rescue print $!.class", network)
      assert_equal "Errno::ECONNREFUSED", text
    end
  end

  def test_the_program_has_no_children_and_its_status_is_kept
    network = Heddle::Lab::DeadNetwork.new
    text, status = inside("print((Process.wait rescue $!.class)); exit 3", network)
    assert_equal "Errno::ECHILD", text
    assert_equal 3, status.exitstatus
  end

  private

  def inside(code, network)
    Open3.capture2(*network.launcher, RbConfig.ruby, "-rsocket", "-e", code)
  end

  def run_inside(code, network)
    text, status = inside(code, network)
    assert status.success?, text
    text
  end

  def addresses(name, network)
    run_inside("puts Addrinfo.getaddrinfo('#{name}', 80, nil, :STREAM).map(&:ip_address) rescue nil",
      network).lines(chomp: true)
  end
end

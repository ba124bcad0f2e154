# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/dead_network"

runs_on rubies: :ends, backends: :one

# The names of addresses: while a task waits for a slow answer, other tasks run.
class AddressNamesTest < Minitest::Test
  include LoopHelpers
  include DeadNetworkHelpers

  ZONE = {"192.0.2.9" => {"ptr" => "nine.test", "delay" => 0.4}, "192.0.2.8" => {"ptr" => "eight.test"}}.freeze

  WAYS = {
    "Addrinfo" => 'Addrinfo.tcp("192.0.2.9", 80).getnameinfo',
    "Socket" => 'Socket.getnameinfo(Socket.sockaddr_in(80, "192.0.2.9"))',
    "Array" => 'Socket.getnameinfo(["AF_INET", 80, nil, "192.0.2.9"])'
  }.freeze

  WAYS.each do |name, way|
    define_method("test_#{name.downcase}") do
      text, gap = beside_a_heartbeat(way)
      assert_equal '["nine.test", "http"]', text
      assert_operator gap, :<, stretched(0.3)
    end
  end

  def test_without_the_patch_other_tasks_stop
    text, gap = beside_a_heartbeat(WAYS["Addrinfo"], env: {"HEDDLE_RUBY_FIXES" => "off"})
    assert_equal '["nine.test", "http"]', text
    assert_operator gap, :>, 0.35, "Ruby #{RUBY_VERSION} does not have the defect: the patch need not be loaded"
  end

  def test_answers_equal_rubys
    program = <<~RUBY
      puts [Addrinfo.tcp("192.0.2.8", 80).getnameinfo, Addrinfo.udp("192.0.2.8", 514).getnameinfo].inspect
      puts Addrinfo.tcp("192.0.2.7", 1).getnameinfo(Socket::NI_NUMERICSERV).inspect
      puts((Addrinfo.tcp("192.0.2.7", 1).getnameinfo(Socket::NI_NAMEREQD) rescue [$!.class, $!.message].inspect))
      puts((Socket.getnameinfo("short") rescue $!.class), (Socket.getnameinfo(nil) rescue $!.class))
      puts Addrinfo.unix("/tmp/no").getnameinfo[1].inspect
    RUBY
    network = dead_network(zone: ZONE)
    stock = assert_child(program, launcher: network.launcher)
    assert_equal stock, assert_child("Heddle.run do\n#{program}\nend", launcher: network.launcher)
    assert_equal 6, stock.lines.size
  end

  # Servers ask for the address of each client.
  def test_addresses_without_names_take_rubys_own_way
    Heddle.run do
      TCPServer.open("127.0.0.1", 0) do |server|
        TCPSocket.open("127.0.0.1", server.addr[1]) do |client|
          def client.remote_address = raise("asked for what only a name needs")
          assert_equal "127.0.0.1", client.peeraddr(false).last
          assert_raises(RuntimeError) { client.peeraddr(true) }
        end
      end
    end
  end

  def test_peers
    network = dead_network(zone: {"127.0.0.1" => {"ptr" => "never.asked"}}, hosts: {"127.0.0.1" => ["here"]})
    program = <<~RUBY
      server = TCPServer.new("127.0.0.1", 0)
      client = TCPSocket.new("127.0.0.1", server.addr[1])
      [nil, true, false, :hostname, :numeric].each do |wanted|
        puts client.peeraddr(*wanted)[2], client.addr(*wanted)[2]
      end
      client.do_not_reverse_lookup = false
      puts client.peeraddr[2], client.peeraddr(:numeric)[2], (client.peeraddr(:wrong) rescue $!.class)
    RUBY
    stock = assert_child(program, launcher: network.launcher)
    assert_equal stock, assert_child("Heddle.run do\n#{program}\nend", launcher: network.launcher)
    assert_includes stock, "localhost"
  end

  private

  # The result of the Ruby code, and the longest time that another task had to wait meanwhile.
  def beside_a_heartbeat(code, env: {})
    network = dead_network(zone: ZONE)
    out = assert_child(<<~RUBY, launcher: network.launcher, env: {"RUBYOPT" => nil, **env})
      def now = Heddle::Clock.now
      Heddle.run do
        longest = 0.0
        asking = Heddle.spawn { sleep(0.005); (#{code}).inspect }
        until asking.ended?
          last = now
          sleep 0.001
          longest = [longest, now - last].max
        end
        puts asking.value, longest
      end
    RUBY
    [out.lines[0].chomp, out.lines[1].to_f]
  end
end

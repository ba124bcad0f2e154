# frozen_string_literal: true

require "test_helper"
require "net/http"
require "support/worlds"

# The network of a simulated world: its hosts, links and connections.
class SimulatedNetworkTest < Minitest::Test
  include Worlds

  def test_net_http_takes_virtual_time_alone
    spent = cpu_time do
      run_world do |world|
        world.host("api.example") { |server| server.http(80) { |request| "you asked for #{request.path}" } }
        world.link("api.example", latency: 10)
        http = Net::HTTP.new("api.example")
        http.open_timeout = http.read_timeout = 100
        assert_equal "you asked for /a", http.get("/a").body
        assert_operator world.now, :>=, 40 # there and back, twice
      end
    end
    assert_operator spent, :<=, 2
  end

  def test_a_day_of_requests
    count = 0
    spent = cpu_time do
      run_world do |world|
        world.host("api.example") { |server| server.http(80) { "ok" } }
        Net::HTTP.start("api.example") do |http|
          http.keep_alive_timeout = 60
          while world.now < 86_400
            http.get("/")
            count += 1
            sleep 30
          end
        end
      end
    end
    assert_operator spent, :<=, 5
    assert_equal 2_880, count
  end

  def test_refused_unknown_and_hanging
    run_world do |world|
      world.host("api.example", "10.1.2.3")
      assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("api.example", 81) }
      assert_raises(SocketError) { TCPSocket.new("nowhere.example", 80) }
      assert_raises(Errno::EHOSTUNREACH) { TCPSocket.new("10.9.9.9", 80) }
      world.part("api.example")
      before = world.now
      late = [Errno::ETIMEDOUT, *(IO::TimeoutError if defined?(IO::TimeoutError))] # as Ruby 4.0 says
      assert_raises(*late) { TCPSocket.new("api.example", 80) }
      assert_in_delta 127, world.now - before, 1
    end
  end

  def test_each_host_has_addresses_of_its_own
    run_world do |world|
      world.host("first.example", "10.0.0.2")
      world.host("again.example")
      hosts = %w[again.example three.example four.example five.example].map { |name| world.host(name) }
      assert_equal 5, [*hosts.flat_map(&:addresses), "10.0.0.2"].uniq.size
      world.host("six.example", "2001:DB8:0::5") { |host| host.tcp(80) { |socket| socket.write("six") } }
      assert_equal "six", TCPSocket.new("six.example", 80).read
    end
  end

  def test_both_ends_and_their_addresses
    run_world do |world|
      seen = nil
      world.host("api.example", "10.1.2.3") do |server|
        server.tcp(4000) do |socket|
          seen = socket.peeraddr(false)
          socket.write(socket.gets)
          socket.close_write
          assert_equal "rest", socket.read
        end
      end
      socket = TCPSocket.new("api.example", 4000)
      socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, true)
      socket.setsockopt(:TCP, :NODELAY, true)
      assert socket.getsockopt(:TCP, :NODELAY).bool
      assert_equal ["10.1.2.3", 4000], [socket.remote_address.ip_address, socket.peeraddr[1]]
      socket.puts("line")
      assert_equal "line\n", socket.read
      socket.write("rest")
      assert_equal socket.local_address.ip_port, seen[1]
      socket.close
      sleep 1
    end
  end

  def test_a_reset_connection
    run_world do |world|
      world.host("api.example") { |server| server.tcp(80) { |socket| socket.read } }
      world.link("api.example", reset: 1)
      socket = TCPSocket.new("api.example", 80)
      socket.write("x")
      assert_raises(Errno::ECONNRESET) { socket.read }
    end
  end

  def test_a_parted_host_holds_what_is_under_way
    run_world do |world|
      world.host("api.example") { |server| server.tcp(80) { |socket| socket.write(socket.gets) } }
      socket = TCPSocket.new("api.example", 80)
      world.part("api.example")
      socket.puts("line")
      assert_nil socket.wait_readable(100)
      world.heal("api.example")
      assert_equal "line\n", socket.gets
    end
  end

  # What is said of a host holds for the connections that it has.
  def test_a_new_link_and_a_partition_reach_open_connections
    run_world do |world|
      world.host("api.example") do |server|
        server.tcp(80) { |socket| while (line = socket.gets) do socket.write(line) end }
      end
      socket = TCPSocket.new("api.example", 80)
      world.part("api.example")
      socket.puts("held")
      assert_nil socket.wait_readable(10)
      world.link("api.example", latency: 3)
      assert_nil socket.wait_readable(10)
      world.heal("api.example")
      assert_equal "held\n", socket.gets
      before = world.now
      socket.puts("slow")
      assert_equal "slow\n", socket.gets
      assert_in_delta 6, world.now - before, 0.01
    end
  end

  # A segment that stalls keeps back what follows, and nothing else.
  def test_what_left_before_a_stall_arrives
    got = []
    run_world(seeds: 1..20) do |world|
      bytes = 0
      world.host("api.example") { |server| server.tcp(80) { |socket| loop { bytes += socket.readpartial(9000).size } } }
      socket = TCPSocket.new("api.example", 80)
      world.link("api.example", latency: 0.5, stall: 0.2)
      20.times { socket.write("x" * 1448) }
      sleep 10
      world.link("api.example")
      socket.write("x")
      sleep 10
      got << bytes
    end
    assert_operator got.count(&:positive?), :>, 5, got.inspect
    assert_operator got.max, :<, 20 * 1448
  end

  def test_an_end_that_is_always_lost
    run_world do |world|
      ended = false
      world.host("api.example") { |server| server.tcp(80) { |socket| socket.read.then { ended = true } } }
      socket = TCPSocket.new("api.example", 80)
      world.link("api.example", loss: 1)
      socket.close
      sleep 10_000
      refute ended
    end
  end

  def test_bandwidth_and_a_full_buffer
    run_world do |world|
      world.host("api.example") { |server| server.tcp(80) { |socket| socket.read } }
      world.link("api.example", bandwidth: 100_000)
      socket = TCPSocket.new("api.example", 80)
      before = world.now
      socket.write("x" * 5_000_000)
      assert_in_delta 45, world.now - before, 6
    end
  end

  def test_a_stream
    run_world do |world|
      world.host("api.example") { |server| server.tcp(80) { |socket| socket.write(socket.readpartial(5)) } }
      stream = Heddle::Stream.connect("api.example", 80)
      stream.write("hello")
      stream.flush
      assert_equal "hello", stream.read(5)
      stream.close
    end
  end

  def test_an_address_in_another_spelling
    run_world do |world|
      world.host("api.example", "fd00::0:1") { |server| server.tcp(80) { |socket| socket.write("hello") } }
      assert_equal "hello", TCPSocket.new("api.example", 80).read
    end
  end

  def test_sockets_that_connect_by_themselves
    run_world do |world|
      world.host("api.example", "10.1.2.3") { |server| server.tcp(80) { |socket| socket.write("hello") } }
      socket = Socket.new(:INET, :STREAM)
      socket.connect(Addrinfo.tcp("10.1.2.3", 80))
      assert_equal "hello", socket.read
      socket = Socket.new(:INET, :STREAM)
      assert_equal :wait_writable, socket.connect_nonblock(Addrinfo.tcp("10.1.2.3", 80), exception: false)
      assert_raises(IO::EINPROGRESSWaitWritable) { socket.connect_nonblock(Addrinfo.tcp("10.1.2.3", 80)) }
      assert_same socket, socket.wait_writable(10)
      assert_equal 0, socket.connect_nonblock(Addrinfo.tcp("10.1.2.3", 80), exception: false)
      socket = Socket.new(:INET, :STREAM)
      assert_raises(Errno::ECONNREFUSED) { socket.connect(Addrinfo.tcp("10.1.2.3", 81)) }
      assert_equal Errno::ECONNREFUSED::Errno, socket.getsockopt(:SOCKET, :ERROR).int
    end
  end

  def test_what_would_reach_the_real_network
    require "pg"
    run_world do
      [
        -> { Socket.new(:INET, :DGRAM).connect(Addrinfo.udp("127.0.0.1", 80)) },
        -> { Socket.new(:INET, :DGRAM).bind(Addrinfo.udp("127.0.0.1", 0)) },
        -> { UDPSocket.new.sendmsg("x", 0, Addrinfo.udp("127.0.0.1", 80)) }, -> { PG.connect(host: "127.0.0.1") }
      ].each do |reach|
        assert_includes assert_raises(Heddle::Simulation::Error) { reach.call }.message, "real network"
      end
    end
  end

  def test_connections_that_no_server_has_seen_yet_are_closed
    GC.disable
    before = descriptor_count
    Heddle::Simulation.run(seeds: 1..20) do |world|
      world.host("one.example") { |host| host.tcp(80, &:read) }
      TCPSocket.new("one.example", 80).close
    end
    assert_equal before, descriptor_count
  ensure
    GC.enable
  end
end

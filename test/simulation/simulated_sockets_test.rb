# frozen_string_literal: true

require "test_helper"
require "heddle/simulation"
require "heddle/stream"
require "resolv"

# Sockets other than those that connect by TCP: servers of the code under test, UNIX sockets, and UDP.
class SimulatedSocketsTest < Minitest::Test
  def run_world(seed = 1, &block) = Heddle::Simulation.run(seeds: [seed], &block)

  def test_a_server_of_the_code_under_test
    run_world do
      server = TCPServer.new("127.0.0.1", 0)
      port = server.addr[1]
      assert_equal "127.0.0.1", server.local_address.ip_address
      assert_raises(Errno::ENOTCONN) { server.remote_address }
      echo = Heddle.spawn { 3.times { server.accept.then { |socket| Heddle.spawn { echo(socket) } } } }
      clients = Array.new(3) { TCPSocket.new("localhost", port) }
      clients.each_with_index { |client, number| client.puts("line #{number}") }
      assert_equal ["line 0\n", "line 1\n", "line 2\n"], clients.map(&:gets)
      assert_equal ["127.0.0.1", port], clients.first.peeraddr.values_at(3, 1)
      echo.wait
      assert_equal :wait_readable, server.accept_nonblock(exception: false)
      assert_raises(IO::EAGAINWaitReadable) { server.accept_nonblock }
      server.close
      assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("localhost", port) }
      assert_equal port, TCPServer.new("localhost", port).addr[1] # again
    end
  end

  def echo(socket)
    assert_instance_of TCPSocket, socket
    assert_equal "127.0.0.1", socket.peeraddr.last
    socket.write(socket.gets)
    socket.close
  end

  def test_ports_are_taken
    run_world do
      server = TCPServer.new(8080)
      assert_raises(Errno::EADDRINUSE) { TCPServer.new("::1", 8080) }
      assert_nil IO.select([server], nil, nil, 1)
      refute server.wait_readable(1)
      client = TCPSocket.new("localhost", 8080)
      assert_same server, server.wait_readable(1)
      IO.for_fd(server.sysaccept).close
      assert_nil client.read(1)
    end
  end

  def test_a_full_backlog
    run_world do |world|
      server = Socket.new(:INET, :STREAM)
      server.bind(Addrinfo.tcp("0.0.0.0", 8080))
      server.listen(1)
      first = TCPSocket.new("localhost", 8080)
      second = Heddle.spawn { TCPSocket.new("localhost", 8080) }
      sleep 1.5
      refute_predicate second, :ended?
      accepted, address = server.accept
      assert_equal first.local_address.ip_port, address.ip_port
      assert_instance_of Socket, accepted
      second.value
      assert_in_delta 3, world.now, 0.1 # by the second retry
    end
  end

  # The kernel resets them; nobody would ever answer.
  def test_a_server_that_closes_before_it_has_accepted
    open = Dir.children("/dev/fd").size
    run_world do
      server = TCPServer.new("localhost", 8080)
      server.listen(200)
      clients = Array.new(100) { TCPSocket.new("localhost", 8080) }
      clients.first.write("hello")
      server.close
      assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("localhost", 8080) }
      clients.each { |client| assert_raises(Errno::ECONNRESET) { client.read } }
      server = TCPServer.new("localhost", 8080)
      TCPSocket.new("localhost", 8080).write("hello")
      server.wait_readable
    end
    GC.start
    assert_operator Dir.children("/dev/fd").size, :<=, open + 20
  end

  def test_as_many_clients_as_a_backlog_takes
    run_world do
      server = TCPServer.new("localhost", 8080)
      clients = Array.new(400) { Heddle.spawn { TCPSocket.new("localhost", 8080).tap { |client| client.write("x") } } }
      clients.each(&:wait)
      accepted = Array.new(400) { server.accept }
      assert_equal ["x"], accepted.map { |socket| socket.read(1) }.uniq
      assert_equal :wait_readable, server.accept_nonblock(exception: false)
    end
  end

  def test_a_server_by_socket
    run_world do
      servers = Socket.tcp_server_sockets("127.0.0.1", 8080)
      socket = Socket.tcp("127.0.0.1", 8080)
      accepted, = servers.first.accept_nonblock
      accepted.write("hello")
      accepted.close
      assert_equal "hello", socket.read
      assert_raises(Errno::EINVAL) { Socket.new(:INET, :STREAM).accept }
    end
  end

  class OwnSocket < TCPSocket
    def initialize(host) = super(host, 80)
  end

  # Ruby connects these in its C.
  def test_a_class_that_connects_by_itself
    run_world do |world|
      world.host("api.example") { |host| host.tcp(80) { |socket| socket.write("hello") } }
      assert_match(/real network/, assert_raises(Heddle::Simulation::Error) { OwnSocket.new("api.example") }.message)
    end
  end

  def test_own_addresses
    run_world do |world|
      world.host("api.example") { |host| host.tcp(80) { |socket| socket.write("from #{socket.peeraddr[1]}") } }
      assert_match(/from \d+/, TCPSocket.new("api.example", 80).read)
      assert_equal "from 4711", TCPSocket.new("api.example", 80, "10.255.0.1", 4711).read
      assert_equal "from 4712", Socket.tcp("api.example", 80, "10.255.0.1", 4712).read
    end
  end

  def test_unix_sockets
    run_world do |world|
      world.unix("/run/served") { |socket| socket.write(socket.gets) }
      [UNIXSocket.new("/run/served"), Socket.unix("/run/served")].each do |socket|
        socket.puts("line")
        assert_equal "line\n", socket.gets
        assert_equal "/run/served", socket.remote_address.unix_path
      end
      stream = Heddle::Stream.unix("/run/served", timeout: 5)
      stream.write("line\n")
      assert_equal "line\n", stream.gets
      server = UNIXServer.new("/run/own")
      client = UNIXSocket.new("/run/own")
      accepted = server.accept
      assert_instance_of UNIXSocket, accepted
      accepted.close
      assert_nil client.gets
      assert_raises(Errno::ENOENT) { UNIXSocket.new("/nowhere") }
    end
  end

  def test_udp
    run_world do |world|
      world.host("time.example", "10.1.2.3") { |host| host.udp(123) { |asked, from| "#{asked} #{from.ip_address}" } }
      world.link("time.example", latency: 2)
      socket = UDPSocket.new
      assert_equal 9, socket.send("the time?", 0, "time.example", 123)
      assert_equal ["the time? 10.255.0.1", ["AF_INET", 123, "10.1.2.3", "10.1.2.3"]], socket.recvfrom(100)
      assert_in_delta 4, world.now, 0.1
      socket.connect("time.example", 123)
      socket.write("b")
      assert_equal "b 10.255.0.1", socket.recv(100)
      socket.send("third one", 0)
      assert_equal :wait_readable, socket.recvfrom_nonblock(100, exception: false)
      assert socket.wait_readable(10)
      assert_equal "third one 10.255.0.1", socket.recvfrom_nonblock(100).first
      assert_raises(Errno::EDESTADDRREQ) { UDPSocket.new.send("to nobody", 0) }
      world.part("time.example")
      socket.send("fourth one", 0)
      refute socket.wait_readable(10)
      UDPSocket.new.send("into the dark", 0, "10.9.9.9", 9)
    end
  end

  def test_udp_between_own_sockets
    run_world do
      server = UDPSocket.new
      server.bind("127.0.0.1", 0)
      port = server.addr[1]
      assert_raises(Errno::EADDRINUSE) { UDPSocket.new.bind("127.0.0.1", port) }
      client = UDPSocket.new
      client.send("good day", 0, "127.0.0.1", port)
      text, from = server.recvfrom(100)
      server.send("#{text} back", 0, from[3], from[1])
      assert_equal ["good day back", ["AF_INET", port, "127.0.0.1", "127.0.0.1"]], client.recvfrom(100)
      assert_raises(Errno::EADDRINUSE) { UDPSocket.new.bind("127.0.0.1", port) }
      assert_equal "good day", text
      client.close
      server.close
      UDPSocket.new.bind("127.0.0.1", port) # is free again
    end
  end

  # Each way to read takes the sender of its own datagram, and a peek takes none.
  def test_who_sent_a_datagram
    run_world do |world|
      world.host("echo.example") { |host| 6.times { |port| host.udp(port + 1) { |bytes, _| bytes } } }
      socket = UDPSocket.new
      ask = ->(port) { socket.send(port.to_s, 0, "echo.example", port) && socket.wait_readable }
      sender = ->(flags = 0) { socket.recvfrom(10, flags).then { |text, from| [text.to_i, from[1]] } }
      ask.call(1)
      assert_equal [1, 1], sender.call(Socket::MSG_PEEK)
      assert_equal [1, 1], sender.call
      {recv: 2, recv_nonblock: 3, readpartial: 4, sysread: 5, read_nonblock: 6}.each do |method, port|
        ask.call(port)
        assert_equal port, socket.public_send(method, 10).to_i
        ask.call(1)
        assert_equal [1, 1], sender.call, method
      end
    end
  end

  def test_sockets_that_are_closed_take_no_descriptors
    run_world do |world|
      world.host("a.example") { |host| host.udp(1) { |bytes, _| bytes } }
      before = descriptors
      300.times do
        UDPSocket.new.tap { |socket| socket.send("a word", 0, "a.example", 1) && socket.recv(1) }.close
        Socket.new(:INET, :STREAM).tap { |socket| socket.bind(Addrinfo.tcp("127.0.0.1", 0)) }.close
        TCPServer.new("127.0.0.1", 0).close
      end
      sleep 1
      assert_operator descriptors, :<=, before + 20
    end
  end

  def test_connections_that_nobody_accepted
    before = descriptors
    Heddle::Simulation.run(seeds: 30) do
      server = TCPServer.new("127.0.0.1", 8080)
      clients = Array.new(3) { TCPSocket.new("127.0.0.1", 8080) }
      server.close
      assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", 8080) }
      clients.each { |client| assert_raises(Errno::ECONNRESET) { client.read } }
      TCPServer.new("127.0.0.1", 8080)
      clients = Array.new(3) { TCPSocket.new("127.0.0.1", 8080) }
      clients.each(&:close)
    end
    GC.start
    assert_operator descriptors, :<=, before + 20
  end

  def descriptors = Dir.children("/dev/fd").size

  def test_a_thousand_wait_to_be_accepted
    run_world do
      server = TCPServer.new("127.0.0.1", 8080)
      clients = Array.new(1000) { TCPSocket.new("127.0.0.1", 8080) }
      ports = Array.new(1000) { server.accept.then { |socket| [socket.peeraddr[1], socket.close].first } }
      assert_equal clients.map { |client| client.addr[1] }, ports
      assert_equal :wait_readable, server.accept_nonblock(exception: false)
    end
  end

  def test_options_of_sockets
    run_world do |world|
      world.host("api.example") { |host| host.tcp(80) { |socket| socket.write(socket.gets) } }
      socket = TCPSocket.new("api.example", 80)
      assert_equal 0, socket.getsockopt(:TCP, :NODELAY).int
      socket.setsockopt(:TCP, :NODELAY, true)
      assert socket.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY).bool
      socket.setsockopt("TCP", "KEEPIDLE", 7)
      socket.setsockopt(Socket::Option.int(:INET, :IP, :TTL, 9))
      assert_equal [7, 9], [socket.getsockopt(:TCP, :KEEPIDLE), socket.getsockopt(:IP, :TTL)].map(&:int)
      socket.setsockopt(:SOCKET, :KEEPALIVE, true)
      assert socket.getsockopt(:SOCKET, :KEEPALIVE).bool
      assert_equal 0, UDPSocket.new.getsockopt(:SOCKET, :ERROR).int
      stream = Heddle::Stream.connect("api.example", 80, timeout: 5, keepalive: true)
      stream.write("line\n")
      assert_equal "line\n", stream.gets
    end
  end

  # Some of a hundred datagrams are lost, and some overtake others.
  def test_udp_loses
    run_world do |world|
      got = []
      world.host("log.example") { |host| host.udp(514) { |line, _| got << line.to_i && nil } }
      world.link("log.example", latency: 0.01..0.1, loss: 0.2)
      socket = UDPSocket.new
      100.times { |number| socket.send(number.to_s, 0, "log.example", 514) }
      sleep 1
      assert_includes 60..95, got.size
      refute_equal got.sort, got
      assert_equal got.uniq, got
    end
  end

  # Ruby's own resolver asks again when no answer comes.
  def test_resolv
    run_world do |world|
      asked = 0
      world.host("dns.example", "10.0.0.53") do |host|
        host.udp(53) { |bytes, _| ((asked += 1) > 1) ? answer(bytes) : nil }
      end
      Resolv::DNS.open(nameserver: ["10.0.0.53"]) do |resolver|
        assert_equal "10.7.7.7", resolver.getaddress("a.example").to_s
      end
      assert_operator asked, :>, 1
      assert_operator world.now, :>, 4 # seconds; the first timeout is 5
    end
  end

  def answer(bytes)
    message = Resolv::DNS::Message.decode(bytes)
    message.qr = 1
    message.add_answer("a.example", 60, Resolv::DNS::Resource::IN::A.new("10.7.7.7"))
    message.encode
  end
end

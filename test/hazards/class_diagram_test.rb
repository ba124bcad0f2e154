# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "tmpdir"

runs_on backends: :one, except: %i[portable]

# Ruby's socket classes and what each can do: {TCPSocket, TCPServer, UDPSocket, UNIXSocket, UNIXServer, Socket} ×
# {connect, accept, accept_nonblock, read, gets, write, recv, send}. Inside a run each call parks only its own fiber;
# outside of a run all work as without Heddle.
class ClassDiagramTest < Minitest::Test
  include LoopHelpers

  CLASSES = %w[TCPSocket TCPServer UDPSocket UNIXSocket UNIXServer Socket].freeze
  OPERATIONS = %w[connect accept accept_nonblock read gets write recv send].freeze

  # Methods that a class lacks are missing in Ruby itself (a server neither reads nor connects, nothing accepts a
  # datagram).
  CELLS = {
    "TCPSocket" => %w[connect read gets write recv send],
    "TCPServer" => %w[accept accept_nonblock],
    "UDPSocket" => %w[connect read gets write recv send],
    "UNIXSocket" => %w[connect read gets write recv send],
    "UNIXServer" => %w[accept accept_nonblock],
    "Socket" => OPERATIONS
  }.freeze

  CELLS.each do |name, operations|
    operations.each do |operation|
      define_method("test_#{name}_#{operation}_inside") do
        with_folder do
          Heddle.run do
            stop = false
            @beats = 0
            heart = Heddle.spawn do
              until stop
                @beats += 1
                sleep(0.001)
              end
            end
            at_start = @beats
            send("#{operation}_of", name, inside: true)
            assert_operator @beats, :>, at_start + 1, "the other fiber stood still"
            stop = true
            heart.wait
          end
        end
      end

      define_method("test_#{name}_#{operation}_outside") do
        assert_nil Fiber.scheduler
        with_folder { send("#{operation}_of", name, inside: false) }
      end
    end
  end

  # The remaining pairs are not in Ruby, or fail at once: a server inherits methods from IO that it cannot perform.
  (CLASSES.product(OPERATIONS) -
    CELLS.flat_map { |name, operations| [name].product(operations) }).each do |name, operation|
    define_method("test_#{name}_#{operation}_does_not_wait") do
      unless Object.const_get(name).method_defined?(operation)
        next refute(Object.const_get(name).method_defined?(operation))
      end

      with_folder do
        server, = listen(name)
        arguments = {"recv" => [1], "write" => ["x"], "send" => ["x", 0]}.fetch(operation, [])
        assert_raises(SystemCallError) { server.public_send(operation, *arguments) }
        Heddle.run { assert_raises(SystemCallError) { server.public_send(operation, *arguments) } }
      end
    end
  end

  private

  PAUSE = 0.01
  LARGE = "0123456789abcdef" * 100_000

  def with_folder
    @closing = []
    Dir.mktmpdir { |folder| (@folder = folder) && yield }
  ensure
    @closing.each { |io| io.close unless io.closed? }
  end

  # Before the other end does its part. Inside a run the pause lasts until the third fiber has run as well, which a
  # busy machine may delay.
  def pause
    from = @beats
    sleep(PAUSE)
    sleep(0.001) until @beats.nil? || @beats > from + 1
    true
  end

  # Runs the block beside what follows: in another task, or in another thread.
  def beside(inside, &block)
    inside ? Heddle.spawn(&block) : Thread.new(&block)
  end

  def closing(*ios)
    @closing.concat(ios)
    ios.one? ? ios.first : ios
  end

  # A server of the class's family, and its address.
  def listen(name)
    case name
    when "TCPSocket", "TCPServer"
      server = closing(TCPServer.new("127.0.0.1", 0))
      [server, -> { TCPSocket.new("127.0.0.1", server.addr[1]) }]
    when "UNIXSocket", "UNIXServer"
      path = "#{@folder}/socket"
      [closing(UNIXServer.new(path)), -> { UNIXSocket.new(path) }]
    when "Socket"
      server = closing(Socket.new(:INET, :STREAM))
      server.bind(Addrinfo.tcp("127.0.0.1", 0))
      server.listen(8)
      [server, -> { Socket.new(:INET, :STREAM).tap { |socket| socket.connect(server.local_address) } }]
    end
  end

  # Both ends of a connection, the first of the class asked for.
  def connected(name)
    if name == "UDPSocket"
      pair = Array.new(2) { UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) } }
      pair.each_with_index { |socket, index| socket.connect("127.0.0.1", pair[1 - index].addr[1]) }
      return closing(*pair)
    end
    server, connect = listen(name)
    client = connect.call
    peer = server.accept
    closing(client, peer.is_a?(Array) ? peer.first : peer)
  end

  # A connect that does not end at once: the backlog is full, until the server accepts.
  def connect_of(name, inside:)
    if name == "UDPSocket"
      socket, peer = connected(name)
      waiter = beside(inside) { peer.recv(10) }
      pause
      socket.write("hello")
      return assert_equal("hello", waiter.value)
    end
    server, connect = listen(name)
    acceptor = beside(inside) { Array.new(3) { pause && closing([server.accept].flatten.first) } }
    clients = Array.new(3) { closing(connect.call) }
    peers = acceptor.value
    clients.each { |client| client.write("hello") }
    assert_equal ["hello"] * 3, peers.map { |peer| peer.readpartial(5) }
    assert_instance_of Object.const_get(name), clients.first
  end

  def accept_of(name, inside:)
    server, connect = listen(name)
    client = beside(inside) { pause && closing(connect.call).write("hello") }
    assert_equal "hello", closing([server.accept].flatten.first).readpartial(5)
    client.value
  end

  def accept_nonblock_of(name, inside:)
    server, connect = listen(name)
    assert_raises(IO::WaitReadable) { server.accept_nonblock }
    assert_equal :wait_readable, server.accept_nonblock(exception: false)
    client = beside(inside) { pause && closing(connect.call).write("hello") }
    server.wait_readable(5)
    assert_equal "hello", closing([server.accept_nonblock].flatten.first).readpartial(5)
    client.value
  end

  def read_of(name, inside:)
    receive(name, inside, %w[one two]) do |socket|
      (name == "UDPSocket") ? socket.readpartial(3) + socket.readpartial(3) : socket.read(6)
    end
      .then { |text| assert_equal "onetwo", text }
  end

  def gets_of(name, inside:)
    receive(name, inside, ["li", "ne\n"]) { |socket| socket.gets }
      .then { |text| assert_equal "line\n", text }
  end

  def recv_of(name, inside:)
    receive(name, inside, %w[one two]) { |socket| socket.recv(3) + socket.recv(3) }
      .then { |text| assert_equal "onetwo", text }
  end

  def receive(name, inside, parts)
    socket, peer = connected(name)
    sender = beside(inside) do
      parts.each { |part| pause && peer.send(part, 0) }
    end
    yield(socket).tap { sender.value }
  end

  def write_of(name, inside:)
    transmit(name, inside) { |socket, text| socket.write(text) }
  end

  def send_of(name, inside:)
    transmit(name, inside) { |socket, text| socket.send(text, 0) }
  end

  # More bytes than fit into the kernel's buffers, while the other end reads slowly; a datagram either fits or does
  # not.
  def transmit(name, inside)
    socket, peer = connected(name)
    if name == "UDPSocket"
      receiver = beside(inside) { peer.recv(10) }
      pause
      assert_equal 4, yield(socket, "text")
      return assert_equal("text", receiver.value)
    end
    receiver = beside(inside) { pause && peer.read }
    rest = LARGE
    rest = rest.byteslice(yield(socket, rest)..) until rest.empty?
    socket.close
    assert_equal LARGE.hash, receiver.value.hash
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/certificates"
require "support/loop_helpers"
require "fcntl"
require "openssl"
require "pty"
require "stringio"
require "tempfile"
require "tmpdir"

class KindsOfIOTest < Minitest::Test
  include LoopHelpers

  def test_regular_files_are_always_ready
    Tempfile.create("heddle") do |file|
      Heddle.run do
        file.write("line\n" * 1000)
        file.flush
        file.rewind
        assert_equal IO::READABLE, Fiber.scheduler.io_wait(file, IO::READABLE, nil)
        assert_equal IO::READABLE | IO::WRITABLE, Fiber.scheduler.io_wait(file, IO::READABLE | IO::WRITABLE, 1)
        assert_equal "line\n", file.gets
        assert_equal 4995, file.read.bytesize
        assert_nil file.gets
        assert_equal "line\n" * 1000, File.read(file.path)
        assert_equal "xyz", IO.copy_stream(StringIO.new("xyz"), file.path) && File.read(file.path)
      end
    end
  end

  def test_null_and_zero_devices
    Heddle.run do
      assert_nil File.open(File::NULL) { |null| null.read(1) }
      assert_equal "\0" * 100, File.open("/dev/zero") { |zero| zero.read(100) }
      assert_equal 3, File.write(File::NULL, "abc")
    end
  end

  [true, false].each do |nonblocking|
    with = nonblocking ? "with" : "without"

    define_method("test_a_pipe_#{with}_o_nonblock_lets_others_run_while_it_is_empty") do
      pipe(nonblocking) do |reader, writer|
        Heddle.run do
          waiter = Heddle.spawn { reader.readpartial(100) }
          line = Heddle.spawn { sleep(0.001) && :ran }
          assert_equal :ran, line.value
          writer.write("hello")
          assert_equal "hello", waiter.value
        end
      end
    end

    define_method("test_a_pipe_#{with}_o_nonblock_lets_others_run_while_it_is_full") do
      pipe(nonblocking) do |reader, writer|
        Heddle.run do
          data = "0123456789abcdef" * 40_000
          sender = Heddle.spawn { writer.write(data).tap { writer.close } }
          received = +""
          until reader.eof?
            received << reader.readpartial(50_000)
            sleep(0)
          end
          assert_equal data.size, sender.value
          assert_equal data, received
        end
      end
    end

    define_method("test_lines_from_a_pipe_#{with}_o_nonblock") do
      pipe(nonblocking) do |reader, writer|
        Heddle.run do
          lines = Heddle.spawn { reader.each_line.to_a }
          3.times { |index| writer.puts("line #{index}") and sleep(0.001) }
          writer.close
          assert_equal ["line 0\n", "line 1\n", "line 2\n"], lines.value
        end
      end
    end
  end

  def test_unix_sockets
    Dir.mktmpdir do |folder|
      path = File.join(folder, "socket")
      UNIXServer.open(path) do |server|
        Heddle.run do
          echo = Heddle.spawn do
            connection = server.accept
            connection.write(connection.gets.upcase)
            connection.close
          end
          UNIXSocket.open(path) do |socket|
            socket.puts("hello")
            assert_equal "HELLO\n", socket.read
          end
          echo.wait
        end
      end
    end
  end

  def test_descriptors_sent_over_unix_sockets
    with_pair do |here, there|
      Heddle.run do
        receiver = Heddle.spawn { there.recv_io }
        File.open(File::NULL) { |file| here.send_io(file) }
        received = receiver.value
        assert_equal "", received.read
        received.close
      end
    end
  end

  def test_udp_sockets
    Heddle.run do
      server = UDPSocket.new
      server.bind("127.0.0.1", 0)
      receiver = Heddle.spawn { server.recvfrom(100).first }
      client = UDPSocket.new
      data = "datagram"
      client.send(data, 0, "127.0.0.1", server.addr[1])
      assert_equal "datagram", receiver.value
    ensure
      [server, client].each(&:close)
    end
  end

  def test_tcp_connect_accept_and_a_refused_connect
    Heddle.run do
      server = TCPServer.new("127.0.0.1", 0)
      port = server.addr[1]
      accepted = Heddle.spawn { server.accept }
      client = TCPSocket.new("127.0.0.1", port)
      peer = accepted.value
      data = "x" * 3_000_000
      sender = Heddle.spawn { client.write(data).tap { client.close } }
      assert_equal data.size, peer.read.size
      assert_equal data.size, sender.value
      peer.close
      server.close
      assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port) }
      assert_raises(Errno::ECONNREFUSED) { Socket.tcp("127.0.0.1", port) }
    end
  end

  def test_terminals
    master, slave = PTY.open
    Heddle.run do
      waiter = Heddle.spawn { slave.gets }
      master.puts("typed")
      assert_equal "typed\n", waiter.value
    end
  ensure
    [master, slave].compact.each(&:close)
  end

  def test_openssl_sockets
    with_pair do |here, there|
      Heddle.run do
        server = Heddle.spawn do
          socket = OpenSSL::SSL::SSLSocket.new(there, Certificates.context)
          socket.accept
          line = socket.gets
          socket.write(line.upcase * 50_000)
          socket.close
        end
        client = OpenSSL::SSL::SSLSocket.new(here)
        client.connect
        others = Heddle.spawn { sleep(0.001) && :ran }
        client.puts("hello")
        assert_equal "HELLO\n" * 50_000, client.read
        assert_equal :ran, others.value
        server.value
      end
    end
  end

  # Pipes are O_NONBLOCK unless the program changed that; Ruby copies to a blocking pipe by its own system call.
  def test_copy_stream_between_sockets_and_pipes
    with_pair do |reader, writer|
      pipe(true) do |out, into|
        Heddle.run do
          copier = Heddle.spawn { IO.copy_stream(reader, into).tap { into.close } }
          data = "0123456789" * 50_000
          sender = Heddle.spawn { writer.write(data) && writer.close }
          assert_equal data, out.read
          assert_equal data.size, copier.value
          sender.value
        end
      end
    end
  end

  private

  def pipe(nonblocking)
    ends = IO.pipe
    ends.each do |io|
      flags = io.fcntl(Fcntl::F_GETFL)
      io.fcntl(Fcntl::F_SETFL, nonblocking ? flags | Fcntl::O_NONBLOCK : flags & ~Fcntl::O_NONBLOCK)
    end
    yield(*ends)
  ensure
    ends&.each(&:close)
  end
end

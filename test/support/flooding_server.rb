# frozen_string_literal: true

require "openssl"
require "rbconfig"
require "socket"

# A server that never lets its client wait: after the steps of a script it repeats some bytes for as long as the
# client takes them. It is a process of its own, since a thread would wait for the GVL of the client that it floods.
#
# A script is an Array of steps: [:write, bytes], [:request] (reads until an empty line), [:line], [:packet] (of
# MySQL's), [:any].
class FloodingServer
  MOST_SECONDS = 20 # how long the process lives

  attr_reader :port

  # @param script [Array<Array>] the steps of each connection
  # @param repeated [String] what the server sends then, without end
  # @param tls [String, nil] a PEM with a certificate and its key
  def initialize(script, repeated, tls: nil)
    reader, writer = IO.pipe
    orders, given = IO.pipe
    @pid = Process.spawn({"RUBYOPT" => nil}, RbConfig.ruby, "--disable=gems", __FILE__, in: orders, out: writer)
    [orders, writer].each(&:close)
    given.binmode
    given.write(Marshal.dump([script, repeated, tls]))
    given.close
    @port = Integer(reader.gets)
    @reader = reader
  end

  # Whether the client has closed a connection itself, within +seconds+.
  def left?(seconds = 5)
    @reader.wait_readable(seconds) && @reader.gets == "left\n"
  end

  def close
    @reader.close
    Process.kill(:KILL, @pid)
    Process.wait(@pid)
  end

  # Runs in the server's process.
  class Flood
    AT_ONCE = 1 << 20

    def initialize(script, repeated, tls)
      @script = script
      @pattern = repeated.b * [AT_ONCE / repeated.bytesize, 1].max
      return unless tls

      @context = OpenSSL::SSL::SSLContext.new
      @context.cert = OpenSSL::X509::Certificate.new(tls)
      @context.key = OpenSSL::PKey.read(tls)
    end

    def run
      server = TCPServer.new("127.0.0.1", 0)
      $stdout.puts(server.addr[1])
      $stdout.flush
      Thread.new { sleep(MOST_SECONDS) && exit!(1) }
      loop { Thread.new(server.accept) { |socket| serve(socket) } }
    end

    private

    def serve(socket)
      socket.setsockopt(:TCP, :NODELAY, true)
      stream = socket
      stream = OpenSSL::SSL::SSLSocket.new(socket, @context).tap(&:accept) if @context
      @script.each { |step, bytes| take(stream, step, bytes) }
      loop { stream.write(@pattern) }
    rescue SystemCallError, IOError, OpenSSL::SSL::SSLError
      $stdout.write("left\n")
      $stdout.flush
    ensure
      socket.close
    end

    def take(stream, step, bytes)
      case step
      when :write then stream.write(bytes)
      when :request then stream.gets("\r\n\r\n") or raise EOFError
      when :line then stream.gets or raise EOFError
      when :any then stream.readpartial(1 << 16)
      when :packet then stream.read((stream.read(4) or raise EOFError).unpack1("V") & 0xffffff)
      else raise ArgumentError, step.inspect
      end
    end
  end
end

FloodingServer::Flood.new(*Marshal.load($stdin.binmode.read)).run if $PROGRAM_NAME == __FILE__

# frozen_string_literal: true

# A server of the client fuzzer, a program of its own: GET /TOKEN/FRAMING/COUNT answers with COUNT times the token,
# POST with the request's body. Prints its two ports, HTTP and HTTPS, and the file of the authority; ends with its
# standard input.

require "openssl"
require "socket"
require "zlib"
require_relative "../certificates"

class ClientFuzzHTTPServer
  def initialize
    @plain, @tls = Array.new(2) { TCPServer.new("127.0.0.1", 0) }
    @context = Certificates.context
  end

  def run
    Thread.report_on_exception = false
    accept(@plain) { |socket| socket }
    accept(@tls) { |socket| OpenSSL::SSL::SSLSocket.new(socket, @context).tap(&:accept) }
    $stdout.puts [@plain.addr[1], @tls.addr[1], Certificates.authority_file].join(" ")
    $stdout.flush
    $stdin.read
  end

  private

  def accept(listener)
    Thread.new do
      loop do
        socket = listener.accept
        Thread.new do
          stream = yield socket
          nil while answer(stream)
        rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
          nil
        ensure
          socket.close
        end
      end
    end
  end

  # @return [Boolean] whether the connection goes on
  def answer(stream)
    line = stream.gets or return
    length = 0
    while (field = stream.gets) && field != "\r\n"
      length = field[/\d+/].to_i if field.match?(/\Acontent-length:/i)
    end
    sent = stream.read(length) if length > 0
    token, framing, count = line.split[1].delete_prefix("/").split("/")
    body = sent || token * count.to_i
    write(stream, token, framing, body)
    framing != "close"
  end

  def write(stream, token, framing, body)
    head = "HTTP/1.1 200 OK\r\nX-Token: #{token}\r\n"
    last = "X-Last: true\r\n\r\n" # without it, a proxy has cut the head
    case framing
    when "chunked"
      stream.write("HTTP/1.1 100 Continue\r\n\r\n") if body.size % 7 == 0
      stream.write("#{head}Transfer-Encoding: chunked\r\n#{last}")
      body.scan(/.{1,997}/m) { |piece| stream.write("#{piece.bytesize.to_s(16)}\r\n#{piece}\r\n") }
      stream.write("0\r\n\r\n")
    when "gzip"
      packed = Zlib.gzip(body)
      stream.write("#{head}Content-Encoding: gzip\r\nContent-Length: #{packed.bytesize}\r\n#{last}#{packed}")
    when "close" then stream.write("#{head}Connection: close\r\n#{last}#{body}")
    else stream.write("#{head}Content-Length: #{body.bytesize}\r\n#{last}#{body}")
    end
    stream.flush
  end
end

ClientFuzzHTTPServer.new.run

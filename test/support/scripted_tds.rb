# frozen_string_literal: true

require "socket"

# A server that speaks as much TDS 7.1 as a log-in and a refusal take. From "[MS-TDS]: Tabular Data Stream Protocol":
# 2.2.3 (packets), 2.2.6.5 (PRELOGIN), 2.2.7 (ERROR, LOGINACK, DONE).
class ScriptedTDS
  PRELOGIN = 0x12
  LOGIN = 0x10
  RESPONSE = 0x04
  # Of messages and of objects that do not exist.
  LOGIN_FAILED = 18_456
  NO_SUCH_OBJECT = 208

  attr_reader :port

  # @param user [String] the one who may log in
  def initialize(user)
    @user = user
    @listener = TCPServer.new("127.0.0.1", 0)
    @port = @listener.addr[1]
    @thread = Thread.new { loop { serve(@listener.accept) } }
    @thread.report_on_exception = false
  end

  def close
    @thread.kill
    @listener.close
  end

  private

  def serve(socket)
    Thread.new do
      while (type, body = read(socket))
        write(socket, answer(type, body))
      end
    rescue IOError, SystemCallError
      nil # the client has gone
    ensure
      socket.close
    end
  end

  def read(socket)
    body = "".b
    loop do
      header = socket.read(8) or return
      type, status, length = header.unpack("CCn")
      body << socket.read(length - 8)
      return [type, body] if status & 1 == 1
    end
  end

  def write(socket, body)
    socket.write([RESPONSE, 1, body.bytesize + 8, 0, 1, 0].pack("CCnnCC") + body)
  end

  def answer(type, body)
    case type
    when PRELOGIN then prelogin
    when LOGIN then body.include?(wide(@user)) ? login_ack + done : error(LOGIN_FAILED, "Login failed.") + done(2)
    else
      body.include?(wide("nowhere")) ? error(NO_SUCH_OBJECT, "Invalid object name 'nowhere'.") + done(2) : done
    end
  end

  # The version and "no encryption".
  def prelogin
    [0, 11, 6, 1, 17, 1, 0xff].pack("CnnCnnC") + [14, 0, 0, 0, 2].pack("CCnnC")
  end

  def login_ack
    name = "Microsoft SQL Server"
    body = [1, 0x71000001, name.size].pack("CNC") + wide(name) + [14, 0, 0, 0].pack("C4")
    [0xad, body.bytesize].pack("Cv") + body
  end

  def error(number, text)
    body = [number, 1, 16, text.size].pack("VCCv") + wide(text) + [0, 0, 1].pack("CCv")
    [0xaa, body.bytesize].pack("Cv") + body
  end

  def done(status = 0) = [0xfd, status, 0, 0].pack("CvvV")

  def wide(text) = text.encode(Encoding::UTF_16LE).b
end

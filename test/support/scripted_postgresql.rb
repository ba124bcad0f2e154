# frozen_string_literal: true

require_relative "scripted_server"

# A server that speaks PostgreSQL's protocol as a test tells it to: hostile servers, poolers, and servers that lack
# parts. Written from "Frontend/Backend Protocol" of PostgreSQL's manual.
class ScriptedPostgreSQL < ScriptedServer
  TLS_REQUEST = 80_877_103
  CANCEL_REQUEST = 80_877_102

  class << self
    # @return [String] a message
    def message(type, payload = "") = type.b + [payload.bytesize + 4].pack("N") + payload.b

    # @return [String] ErrorResponse
    def error(state, text, severity: "FATAL", **fields)
      fields = {"S" => severity, "V" => severity, "C" => state, "M" => text, **fields.transform_keys(&:to_s)}
      message("E", fields.map { |name, value| "#{name}#{value}\0" }.join + "\0")
    end

    def setting(name, value) = message("S", "#{name}\0#{value}\0")

    def ready(state = "I") = message("Z", state)

    # All that follows a log-in that succeeded.
    def welcome(settings = {"server_version" => "15.0"}, process: 7, secret: "abcd")
      message("R", [0].pack("N")) + settings.map { |name, value| setting(name, value) }.join +
        message("K", [process].pack("N") + secret) + ready
    end

    # The answer to a statement with one row of one text column.
    def row(value)
      column = "c\0".b + [0, 0, 25, -1, -1, 0].pack("NnNnNn")
      message("T", [1].pack("n") + column) + message("D", [1, value.bytesize].pack("nN") + value) +
        message("C", "SELECT 1\0")
    end
  end

  def url(user: "me", password: "secret") = "postgresql://#{user}:#{password}@127.0.0.1:#{port}/base"

  # The client, as the server sees it.
  class Peer < ScriptedServer::Peer
    def write(type, payload = "") = raw(ScriptedPostgreSQL.message(type, payload))

    # @return [Array(Integer, String)] a message of the start: its code, and the rest
    def start
      length = exactly(4).unpack1("N")
      exactly(length - 4).unpack("Na*")
    end

    # @return [Hash] the StartupMessage's version and parameters; refuses TLS before it
    def startup
      code, rest = start
      while code == TLS_REQUEST
        raw("N")
        code, rest = start
      end
      {version: code, **rest.split("\0").each_slice(2).to_h.transform_keys(&:to_sym)}
    end

    # @return [Array(String, String)] a message: its type, and the rest
    def read
      head = exactly(5)
      [head[0], exactly(head.unpack("aN").last - 4)]
    end

    # Reads up to the Sync or the simple Query that ends a request.
    #
    # @return [Array<Array(String, String)>] its messages
    def request
      messages = []
      loop do
        messages << read
        return messages if %w[S Q].include?(messages.last.first)
        raise EOFError if messages.last.first == "X"
      end
    end

    # Accepts any login.
    def welcome(...)
      startup.tap { raw(ScriptedPostgreSQL.welcome(...)) }
    end

    # @return [String] the client's half of TLS begins
    def start_tls(context)
      @socket = OpenSSL::SSL::SSLSocket.new(@socket, context)
      @socket.sync_close = true
      @socket.accept
    end

    private

    def exactly(count)
      bytes = @socket.read(count)
      raise EOFError if bytes.nil? || bytes.bytesize < count

      bytes
    end
  end
end

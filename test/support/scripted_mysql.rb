# frozen_string_literal: true

require_relative "scripted_server"

# A server that speaks MySQL's protocol as a test tells it to, for what MariaDB does not do: MySQL 8's login methods,
# and malicious servers. Written from the protocol's documentation ("Client/Server Protocol" of MySQL's internals).
class ScriptedMySQL < ScriptedServer
  SCRAMBLE = "abcdefghijklmnopqrst"
  # The capabilities of MySQL 8.0.11 (2018).
  CAPABILITIES = 0xdfffffff

  class << self
    # Payloads with their headers.
    def packets(sequence, *payloads)
      payloads.each_with_index
        .map { |payload, i| [payload.bytesize | ((sequence + i) & 0xff) << 24].pack("V") + payload.b }.join
    end

    def greeting(plugin: "mysql_native_password", capabilities: CAPABILITIES, version: "8.0.36", thread: 7)
      [10].pack("C") + version + "\0" + [thread].pack("V") + SCRAMBLE[0, 8] + "\0" +
        [capabilities & 0xffff, 45, 2, capabilities >> 16, 21].pack("vCvvC") +
        "\0" * 10 + SCRAMBLE[8..] + "\0" + plugin + "\0"
    end

    def column(name, type, charset: 63, flags: 0)
      text = ["def", "", "t", "t", name, name].map { |part| [part.bytesize].pack("C") + part }.join
      text.b + "\x0c".b + [charset, 20, type, flags, 0].pack("vVCvC") + "\0\0"
    end

    def ok(first: 0, status: 2)
      [first, 0, 0, status, 0].pack("CCCvv")
    end

    def prepared(columns, parameters = 0)
      "\0".b + [1, columns, parameters].pack("Vvv") + "\0\0\0"
    end
  end

  def url(user: "me", password: "secret") = "mysql://#{user}:#{password}@127.0.0.1:#{port}/base"

  # The client, as the server sees it.
  class Peer < ScriptedServer::Peer
    # @return [Array(Integer, String)] a packet's sequence number and payload
    def read
      head = @socket.read(4) or raise EOFError
      length = head.unpack1("V") & 0xffffff
      [head.getbyte(3), @socket.read(length)]
    end

    # Reads requests until one that needs an answer (closes need none).
    def request
      loop do
        _, payload = read
        return payload unless payload.getbyte(0) == 0x19
      end
    end

    def write(sequence, *payloads)
      raw(ScriptedMySQL.packets(sequence, *payloads))
    end

    def greet(**options)
      write(0, ScriptedMySQL.greeting(**options))
    end

    # @return [Hash] the fields of the client's login packet
    def response
      sequence, payload = read
      capabilities, _, charset = payload.unpack("VVC")
      return {sequence: sequence, capabilities: capabilities, tls: true} if payload.bytesize == 32

      user, rest = payload.byteslice(32..).split("\0", 2)
      proof = rest.byteslice(1, rest.getbyte(0))
      database, plugin, = rest.byteslice(1 + rest.getbyte(0)..).split("\0", 3)
      {
        sequence: sequence, capabilities: capabilities, charset: charset, user: user, proof: proof, database: database,
        plugin: plugin
      }
    end

    def ok(sequence = 1)
      write(sequence, ScriptedMySQL.ok)
    end

    def error(sequence, code, state, message)
      write(sequence, "\xff".b + [code].pack("v") + "##{state}#{message}".b)
    end

    # Accepts any login, and answers the first query: the time zone.
    def welcome(**options)
      greet(**options)
      answer = response
      ok(answer[:sequence] + 1)
      request
      ok
    end
  end
end

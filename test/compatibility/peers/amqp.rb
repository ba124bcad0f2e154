# frozen_string_literal: true

require_relative "scripted"

module Compatibility
  module Peers
    # A broker of AMQP 0-9-1 whose queues each hold one message without end: their name, some times.
    class AMQP < Scripted
      METHOD, HEADER, BODY = 1, 2, 3
      END_OF_FRAME = 0xce
      # Answers to a method by class and method. An empty table, text or name is a row of zeros.
      ANSWERS = {
        [10, 11] => [10, 30, 100, 131_072, 0].pack("nnnNn"), # start-ok: tune
        [10, 40] => [10, 41, 0].pack("nnC"), # connection.open
        [10, 50] => [10, 51].pack("nn"), # connection.close
        [20, 10] => [20, 11, 0].pack("nnN"), # channel.open
        [20, 40] => [20, 41].pack("nn") # channel.close
      }.freeze
      private_constant :METHOD, :HEADER, :BODY, :END_OF_FRAME, :ANSWERS

      private

      def play(socket)
        socket.read(8) # the protocol's name and version
        send_frame(socket, METHOD, 0, [10, 10, 0, 9, 0, 5, "PLAIN", 5, "en_US"].pack("nnCCNNa*Na*"))
        while (head = socket.read(7))
          kind, channel, size = head.unpack("CnN")
          payload = socket.read(size + 1)
          answer(socket, channel, payload) if kind == METHOD
        end
      end

      def answer(socket, channel, payload)
        method = payload.unpack("nn")
        return deliver(socket, channel, *payload.unpack("@6Ca*")) if method == [60, 70] # basic.get

        reply = ANSWERS[method] and send_frame(socket, METHOD, channel, reply)
      end

      def deliver(socket, channel, length, rest)
        queue = rest.byteslice(0, length)
        text = queue * 40
        send_frame(socket, METHOD, channel, [60, 71, 1, 0, 0, queue.bytesize, queue, 0].pack("nnQ>CCCa*N"))
        send_frame(socket, HEADER, channel, [60, 0, text.bytesize, 0].pack("nnQ>n"))
        send_frame(socket, BODY, channel, text)
      end

      def send_frame(socket, kind, channel, payload)
        socket.write([kind, channel, payload.bytesize, payload, END_OF_FRAME].pack("CnNa*C"))
      end
    end
  end
end

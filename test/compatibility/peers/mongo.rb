# frozen_string_literal: true

require_relative "scripted"

module Compatibility
  module Peers
    # A server of MongoDB without data, in its messages (OP_MSG). It sends the comment of each command back.
    class Mongo < Scripted
      QUERY, REPLY, MESSAGE = 2004, 1, 2013
      HELLO = {isWritablePrimary: true, ismaster: true, maxBsonObjectSize: 1 << 24, maxMessageSizeBytes: 48_000_000,
               maxWriteBatchSize: 100_000, minWireVersion: 0, maxWireVersion: 21, readOnly: false, ok: 1.0}.freeze
      private_constant :QUERY, :REPLY, :MESSAGE, :HELLO

      private

      def play(socket)
        require "bson"
        while (head = socket.read(16))
          size, request, _, operation = head.unpack("l<4")
          body = socket.read(size - 16)
          socket.write((operation == QUERY) ? old_hello(request) : answer(request, body))
        end
      end

      # Its first question on a connection is in the old way.
      def old_hello(request)
        message(request, REPLY, [8, 0, 0, 1].pack("l<q<l<l<") + HELLO.to_bson.to_s)
      end

      def answer(request, body)
        command = Hash.from_bson(BSON::ByteBuffer.new(body.byteslice(5..)))
        message(request, MESSAGE, [0, 0].pack("l<C") + HELLO.merge(comment: command["comment"].to_s * 40).to_bson.to_s)
      end

      def message(request, operation, body) = [16 + body.bytesize, 1, request, operation].pack("l<4") + body
    end
  end
end

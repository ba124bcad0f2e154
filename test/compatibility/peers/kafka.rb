# frozen_string_literal: true

require_relative "scripted"

module Compatibility
  module Peers
    # A broker of Kafka that has any topic, with one partition, whose next offset is the number in the topic's name.
    #
    # Clients ask it where brokers are. It cannot know the proxy, so clients name their own way to it as their client
    # id: host and port.
    class Kafka < Scripted
      METADATA = 3 # the only other question is for offsets
      private_constant :METADATA

      private

      def play(socket)
        while (size = socket.read(4)&.unpack1("N"))
          request = socket.read(size)
          api, _version, correlation, length = request.unpack("nnNn")
          client = request.byteslice(10, length)
          topics = request.scan(/heddle\d+/)
          answer = (api == METADATA) ? metadata(topics, client) : offsets(topics)
          socket.write([4 + answer.bytesize, correlation].pack("NN") + answer)
        end
      end

      def offsets(topics)
        [0].pack("N") + array(topics) do |topic|
          string(topic) + array([0]) { [0, 0, 0, topic[/\d+/].to_i].pack("Nnq>q>") }
        end
      end

      def metadata(topics, client)
        host, port = client.split(":")
        broker = [1].pack("N") + string(host) + [port.to_i].pack("N") + [-1].pack("s>")
        partition = [0, 0, 1, 1, 1, 1, 1].pack("nNNNNNN")
        array([broker], &:itself) + [1].pack("N") +
          array(topics) { |topic| [0].pack("n") + string(topic) + [0].pack("C") + array([partition], &:itself) }
      end

      def string(text) = [text.bytesize, text].pack("na*")

      def array(items) = [items.size].pack("N") + items.map { |item| yield item }.join
    end
  end
end

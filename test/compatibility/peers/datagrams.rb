# frozen_string_literal: true

module Compatibility
  module Peers
    # A UDP server. The proxy knows streams only, so this one is itself late or silent, as one line on its pipe says:
    # the seconds until an answer, or "silent". An empty line on another pipe says that it does so from then on.
    class Datagrams < Scripted
      def datagrams? = true

      def start
        @orders, @control = IO.pipe
        @taken, @take = IO.pipe
        @answering = "0"
        super
        [@orders, @take].each(&:close)
        self
      end

      # @param shape [String]
      def shape(shape)
        @control.puts(shape)
        @taken.gets
      end

      private

      def listen = UDPSocket.new.tap { |socket| socket.bind(HOST, 0).then { @port = socket.addr[1] } }

      def serve(socket)
        Thread.new { take_orders }
        loop do
          message, sender = socket.recvfrom(65_536)
          next if @answering == "silent"

          Thread.new(Float(@answering)) do |delay|
            answer = @script.call(message) or next
            sleep delay
            socket.send(answer, 0, sender[3], sender[1])
          end
        end
      end

      def take_orders
        @orders.each_line do |line|
          @answering = line.chomp
          @take.puts
        end
      end
    end
  end
end

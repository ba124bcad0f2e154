# frozen_string_literal: true

module Compatibility
  module Peers
    # A server in a process of its own, so that a library which holds the GVL cannot stop it. It ends with the process
    # that started it.
    class Scripted
      HOST = "127.0.0.1"

      def self.start(...) = new(...).start

      attr_reader :port

      def initialize(**_options, &script)
        @script = script
      end

      def host = HOST

      def start
        listener = listen
        alive, @alive = IO.pipe
        @pid = fork do
          @alive.close
          Thread.report_on_exception = false
          Thread.new { serve(listener) }
          alive.read
        ensure
          exit!
        end
        alive.close
        listener.close
        self
      end

      def stop
        @alive.close
        Process.wait(@pid)
      end

      private

      def listen = TCPServer.new(HOST, 0).tap { |server| @port = server.addr[1] }

      def serve(listener)
        loop do
          socket = listener.accept
          socket.setsockopt(:TCP, :NODELAY, true)
          Thread.new do
            play(socket)
          rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
            nil # the client has gone
          rescue => error
            warn "the peer's script: #{error.full_message}"
          ensure
            socket.close
          end
        end
      end

      def play(socket) = @script.call(socket)
    end
  end
end

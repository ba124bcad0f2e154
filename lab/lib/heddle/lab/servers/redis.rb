# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      class Redis < Server
        # @param port [Integer, nil] where to listen, as after a restart; nil: a free port
        def initialize(port: nil)
          @wanted_port = port
        end

        private

        def scheme = "redis"

        def check
          @server = program("redis-server", package: "redis-server")
        end

        def prepare
          @port = @wanted_port if @wanted_port
        end

        def command
          [@server, "--bind", host, "--port", port.to_s, "--save", "", "--appendonly", "no", "--dir", dir]
        end

        def ready? = answers?("PING\r\n", /\A\+PONG/)
      end
    end
  end
end

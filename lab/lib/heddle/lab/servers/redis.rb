# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      class Redis < Server
        private

        def scheme = "redis"

        def check
          @server = program("redis-server", package: "redis-server")
        end

        def command
          [@server, "--bind", host, "--port", port.to_s, "--save", "", "--appendonly", "no", "--dir", dir]
        end

        def ready? = answers?("PING\r\n", /\A\+PONG/)
      end
    end
  end
end

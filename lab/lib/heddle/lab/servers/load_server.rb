# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      # The load server of this repository, a C program: GET /MS answers after MS milliseconds, GET /b/BYTES with a
      # body.
      class LoadServer < Server
        private

        def scheme = "http"

        def check
          @program = ServerProcess.program
        rescue Error => e
          raise Unavailable, e.message
        end

        def command = [@program, "--port", port.to_s, "--exit-with-parent"]

        def ready? = answers?("GET /0 HTTP/1.1\r\nHost: #{host}\r\nConnection: close\r\n\r\n", %r{\AHTTP/1\.1 200})
      end
    end
  end
end

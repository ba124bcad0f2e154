# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      class Memcached < Server
        private

        # It looks for any other signal once a second only, and has nothing to save.
        def stop_signal = :KILL

        def check
          @server = program("memcached", package: "memcached")
        end

        def command
          [@server, *(root? ? ["-u", "root"] : []), "-l", host, "-p", port.to_s, "-U", "0", "-m", "64"]
        end

        def ready? = answers?("version\r\n", /\AVERSION /)
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      # The load server of this repository, a C program: GET /MS answers after MS milliseconds, GET /b/BYTES with a body.
      # Built when its program is missing or older than its source.
      class LoadServer < Server
        SOURCE = File.expand_path("../../../../ext/server", __dir__)
        PROGRAM = File.join(SOURCE, "heddle-server")

        private

        def scheme = "http"

        def check
          return if fresh?
          make = program("make", package: "build-essential")
          File.open(File.join(Servers.cache_dir, "load-server.lock"), File::RDWR | File::CREAT) do |lock|
            lock.flock(File::LOCK_EX)
            run!(make, "-C", SOURCE) unless fresh?
          end
        rescue StartFailed => e
          raise Unavailable, "LoadServer could not be built in #{SOURCE}: #{e.message}"
        end

        def fresh?
          sources = Dir[File.join(SOURCE, "{*.c,*.h,Makefile}")]
          raise Unavailable, "LoadServer has no source in #{SOURCE}" if sources.empty?
          File.executable?(PROGRAM) && sources.all? { |path| File.mtime(path) <= File.mtime(PROGRAM) }
        end

        def command = [PROGRAM, "--port", port.to_s, "--exit-with-parent"]

        def ready? = answers?("GET /0 HTTP/1.1\r\nHost: #{host}\r\nConnection: close\r\n\r\n", %r{\AHTTP/1\.1 200})
      end
    end
  end
end

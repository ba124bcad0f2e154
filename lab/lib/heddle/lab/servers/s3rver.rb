# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      # A server that speaks S3 (npm package s3rver), with one bucket. Objects lie in #dir.
      class S3rver < Server
        VERSION = "3.7.1"
        BUCKET = "heddle"
        # The only account that s3rver accepts.
        ACCESS_KEY = "S3RVER"
        SECRET_KEY = "S3RVER"

        def bucket = BUCKET

        def access_key = ACCESS_KEY

        def secret_key = SECRET_KEY

        private

        def scheme = "http"

        def check
          @node = program("node", "nodejs", package: "nodejs")
          @script = File.join(Servers.node_package("s3rver", VERSION), "node_modules", "s3rver", "bin", "s3rver.js")
        end

        def command
          [@node, "--no-deprecation", @script, "--directory", File.join(dir, "data"), "--address", host,
            "--port", port.to_s, "--configure-bucket", BUCKET, "--silent"]
        end

        def prepare = FileUtils.mkdir_p(File.join(dir, "data"))

        def ready? = answers?("GET /#{BUCKET} HTTP/1.0\r\nHost: #{host}\r\n\r\n", %r{\AHTTP/1\.1 })
      end
    end
  end
end

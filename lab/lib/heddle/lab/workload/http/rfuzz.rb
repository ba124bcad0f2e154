# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # Zed Shaw's client of 2006. The seed had changed it to stream; the released version returns the body whole.
        class RFuzzClient < Client
          implements "rfuzz" => self

          # @see Client.versions
          def self.versions
            [load_gem("rfuzz", "rfuzz/client")]
          rescue LoadError
            raise LoadError, "rfuzz 0.9 of 2007 is not installed: its C code is Ruby 1.8's (RSTRING(string)->ptr, " \
              "Config), and does not compile on Ruby 1.9 and later"
          end

          # @see Client#each_chunk
          def each_chunk = yield(string)

          # @see Client#string
          def string
            response = RFuzz::HttpClient.new(@uri.host, @uri.port).get(@uri.request_uri)
            check(response.http_status)
            response.http_body
          end

          # @see Client#file
          def file(path) = File.binwrite(path, string)

          private

          def keep_alive
            nil while yield(string)
          end

          def one(_) = string
        end
      end
    end
  end
end

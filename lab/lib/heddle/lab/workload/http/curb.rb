# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # libcurl.
        class Curb < Client
          implements "curb" => self

          # @see Client.versions
          def self.versions = [load_gem("curb"), "libcurl #{Curl::CURL_LONG_VERSION[%r{libcurl/(\S+)}, 1]}"]

          # @see Client#each_chunk
          def each_chunk
            perform do |easy|
              easy.on_body do |chunk|
                yield chunk
                chunk.bytesize
              end
            end
          end

          # @see Client#string
          def string = perform {}

          # @see Client#file
          def file(path) = Curl::Easy.download(url, path) { |easy| set(easy) }.then { |easy| check(easy.response_code) }

          # @see Client#upload_file
          def upload_file(path) = File.open(path, "rb") { |file| put(file) }

          # @see Client#upload_string
          def upload_string(body) = put(body)

          private

          def set(easy)
            easy.cacert = @ca_file if @ca_file
            easy.encoding = "gzip" if @gzip
            easy
          end

          def perform
            easy = set(Curl::Easy.new(url))
            yield easy
            easy.perform
            check(easy.response_code)
            easy.body_str
          ensure
            easy&.close
          end

          def put(body)
            easy = set(Curl::Easy.new(url))
            easy.http_put(body)
            easy.body_str
          ensure
            easy&.close
          end

          def keep_alive
            easy = set(Curl::Easy.new(url))
            loop do
              easy.perform
              break unless yield(easy.body_str)
            end
          ensure
            easy&.close
          end

          def one(_) = perform {}
        end
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # httpx.
        class HTTPXClient < Client
          implements "httpx" => self

          # @see Client.versions
          def self.versions
            require "set" # httpx 1.9 expects it to be loaded, as it is from Ruby 3.2 on
            [load_gem("httpx")]
          end

          # @see Client#each_chunk
          def each_chunk(&block)
            response = session.plugin(:stream).get(url, stream: true)
            response.each(&block)
            check(response.status)
          end

          # @see Client#string
          def string = get.body.to_s

          # @see Client#file
          def file(path) = get.body.copy_to(path)

          # @see Client#upload_file
          def upload_file(path) = File.open(path, "rb") { |file| put(file) }

          # @see Client#upload_string
          def upload_string(body) = put(body)

          private

          def session = @ca_file ? HTTPX.with(ssl: {ca_file: @ca_file}) : HTTPX

          def get(session = self.session) = session.get(url).raise_for_status

          def put(body) = session.put(url, body: body).raise_for_status.body.to_s

          def keep_alive
            session.plugin(:persistent).then do |session|
              nil while yield(get(session).body.to_s)
            ensure
              session.close
            end
          end

          def one(_) = get.body.to_s
        end
      end
    end
  end
end

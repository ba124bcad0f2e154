# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # The gem http.
        class HTTPRb < Client
          implements "http.rb" => self

          # @see Client.versions
          def self.versions = [load_gem("http")]

          # @see Client#each_chunk
          def each_chunk(&block) = get.body.each(&block)

          # @see Client#string
          def string = get.body.to_s

          # @see Client#file
          def file(path) = File.open(path, "wb") { |file| get.body.each { |chunk| file.write(chunk) } }

          # @see Client#upload_file
          def upload_file(path) = File.open(path, "rb") { |file| put(file) }

          # @see Client#upload_string
          def upload_string(body) = put(body)

          private

          def session = @gzip ? ::HTTP.use(:auto_inflate).headers("Accept-Encoding" => "gzip") : ::HTTP

          def options = {ssl_context: tls_context}.compact

          def get = session.get(url, **options).tap { |response| check(response.status.code) }

          def put(body) = session.put(url, body: body, **options).body.to_s

          def keep_alive
            ::HTTP.persistent("#{@uri.scheme}://#{@uri.host}:#{@uri.port}") do |http|
              nil while yield(http.get(@uri.path, **options).body.to_s)
            end
          end

          def one(_) = get.body.to_s
        end
      end
    end
  end
end

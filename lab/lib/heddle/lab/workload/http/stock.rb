# frozen_string_literal: true

require "net/http"

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # The Net::HTTP of this Ruby.
        class Stock < Client
          implements "stock" => self

          # @see Client.versions
          def self.versions = ["net-http #{Net::HTTP::VERSION}", "net-protocol #{Net::Protocol::VERSION}"]

          # @see Client#each_chunk
          def each_chunk(&block) = get { |response| response.read_body(&block) }

          # @see Client#string
          def string = get(&:read_body)

          # @see Client#file
          def file(path) = File.open(path, "wb") { |file| get { |response| response.read_body(file) } }

          # @see Client#upload_file
          def upload_file(path)
            File.open(path, "rb") do |file|
              put do |request|
                request.body_stream = file
                request.content_length = file.size
              end
            end
          end

          # @see Client#upload_string
          def upload_string(body) = put { |request| request.body = body }

          private

          def http
            http = Net::HTTP.new(@uri.host, @uri.port)
            http.use_ssl = tls?
            http.ca_file = @ca_file if @ca_file
            http
          end

          def get
            body = nil
            http.start do |http|
              http.request_get(@uri.request_uri) do |response|
                check(response.code)
                body = yield response
              end
            end
            body
          end

          def put
            request = Net::HTTP::Put.new(@uri.request_uri, "Content-Type" => "application/octet-stream")
            yield request
            http.start { |http| http.request(request).body }
          end

          def keep_alive
            http.start { |http| nil while yield(http.get(@uri.path).body) }
          end

          def one(kind)
            return http.start { |http| http.get(@uri.path).body } unless kind == "option"

            Net::HTTP.start(@uri.host, @uri.port, read_timeout: 60) { |http| http.get(@uri.path).body }
          end
        end
      end
    end
  end
end

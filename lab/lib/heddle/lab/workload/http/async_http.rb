# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # async-http, in a reactor of its own for each call.
        class AsyncHTTP < Client
          implements "async-http" => self

          # @see Client.versions
          def self.versions
            versions = [load_gem("async-http", "async/http"), "async #{Gem.loaded_specs["async"]&.version}"]
            require "protocol/http/accept_encoding"
            require "protocol/http/body/file"
            selector = IO::Event::Selector.default.name.split("::").last
            versions << "io-event #{Gem.loaded_specs["io-event"]&.version} (#{selector})"
          end

          # @see Client#each_chunk
          def each_chunk(&block) = get { |response| response.each(&block) }

          # @see Client#string
          def string = get(&:read)

          # @see Client#file
          def file(path) = get { |response| response.save(path) }

          # @see Client#upload_file
          def upload_file(path) = put { Protocol::HTTP::Body::File.open(path) }

          # @see Client#upload_string
          def upload_string(body) = put { Protocol::HTTP::Body::Buffered.wrap(body) }

          private

          def with_client
            Sync do
              endpoint = Async::HTTP::Endpoint.parse(url, **{ssl_context: tls_context}.compact)
              client = Async::HTTP::Client.new(endpoint)
              yield @gzip ? Protocol::HTTP::AcceptEncoding.new(client) : client
            ensure
              client&.close
            end
          end

          def get
            with_client do |client|
              response = client.get(@uri.request_uri)
              check(response.status)
              yield response
            end
          end

          def put = with_client { |client| client.put(@uri.request_uri, {}, yield).read }

          def keep_alive
            with_client { |client| nil while yield(client.get(@uri.path).read) }
          end

          def one(_) = string
        end
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # excon. It does not decompress a body that it yields in pieces, so compressed bodies are only fetched whole.
        class ExconClient < Client
          implements "excon" => self

          # @see Client.versions
          def self.versions = [load_gem("excon")]

          # @see Client#each_chunk
          def each_chunk = get(response_block: ->(chunk, _, _) { yield chunk })

          # @see Client#string
          def string = get.body

          # @see Client#file
          def file(path) = File.open(path, "wb") { |file| get(response_block: ->(chunk, _, _) { file.write(chunk) }) }

          # @see Client#upload_file
          def upload_file(path) = File.open(path, "rb") { |file| put(file) }

          # @see Client#upload_string
          def upload_string(body) = put(body)

          private

          # Without the file or without the store, excon reads the system's authorities for each connection: 20 ms of
          # CPU time.
          def options
            options = {ssl_ca_file: @ca_file, ssl_cert_store: cert_store}.compact
            return options unless @gzip

            options.merge(middlewares: Excon.defaults[:middlewares] + [Excon::Middleware::Decompress])
          end

          def cert_store
            @cert_store ||= @ca_file && OpenSSL::X509::Store.new.add_file(@ca_file)
          end

          def get(**more) = Excon.get(url, **options, **more).tap { |response| check(response.status) }

          def put(body) = Excon.put(url, body: body, **options).body

          def keep_alive
            connection = Excon.new(url, persistent: true, **options)
            nil while yield(connection.get.body)
          ensure
            connection&.reset
          end

          def one(_) = get.body
        end
      end
    end
  end
end

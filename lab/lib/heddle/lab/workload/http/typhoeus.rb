# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # libcurl by ffi. typhoeus keeps connections, unless told not to. It cannot send a stream, so a file to send is
        # read first.
        class TyphoeusClient < Client
          implements "typhoeus" => self

          # @see Client.versions
          def self.versions
            [load_gem("typhoeus"), load_gem("ethon"), "libcurl #{Ethon::Curl.version[%r{libcurl/(\S+)}, 1]}"]
          end

          # @see Client#each_chunk
          def each_chunk
            run do |request|
              request.on_body do |chunk|
                yield chunk
                nil # some return values would make typhoeus stop
              end
            end
          end

          # @see Client#string
          def string = run {}.body

          # @see Client#file
          def file(path)
            File.open(path, "wb") do |file|
              run do |request|
                request.on_body do |chunk|
                  file.write(chunk)
                  nil
                end
              end
            end
          end

          # @see Client#upload_file
          def upload_file(path) = upload_string(File.binread(path))

          # @see Client#upload_string
          def upload_string(body) = run(method: :put, body: body) {}.body

          private

          def run(**options)
            options[:cainfo] = @ca_file if @ca_file
            options[:accept_encoding] = "gzip" if @gzip
            request = Typhoeus::Request.new(url, forbid_reuse: true, **options)
            yield request
            request.run.tap { |response| check(response.code) }
          end

          def keep_alive
            nil while yield(Typhoeus.get(url).body)
          end

          def one(_) = string
        end
      end
    end
  end
end

# frozen_string_literal: true

require "net/http"
require "uri"
require "zlib"

module Heddle
  module Lab
    class Bench
      class HTTP < Bench
        # A site on a server that the bench does not start.
        class Elsewhere
          # @return [String] as the user named it, or else the URL
          attr_reader :name

          # @param text [String] a URL, or NAME=URL
          # @raise [UsageError]
          def initialize(text)
            @name, url = text.match(/\A(\w[\w.-]*)=(.*)\z/)&.captures || [text, text]
            @uri = URI(url)
            unless @uri.is_a?(URI::HTTP) && !@uri.host.to_s.empty?
              raise UsageError, "#{url.inspect} is not an http or https URL with a host"
            end
          rescue URI::InvalidURIError
            raise UsageError, "#{text.inspect} is no URL"
          end

          # @return [Integer]
          def repeat = 1

          # Fetches the body once, so that the body of each client can be compared with it.
          # @return [Hash{String => Object}] "bytes" and "crc" of the body, and the URL
          # @raise [Error] when it cannot be fetched
          def address
            @address ||= begin
              bytes = crc = 0
              Net::HTTP.start(@uri.host, @uri.port, use_ssl: @uri.is_a?(URI::HTTPS)) do |http|
                http.request_get(@uri.request_uri) do |response|
                  unless response.code == "200"
                    raise Error, "#{@name} answers #{response.code} #{response.message}: nothing to measure"
                  end

                  response.read_body { |segment| bytes, crc = bytes + segment.bytesize, Zlib.crc32(segment, crc) }
                end
              end
              {"url" => @uri.to_s, "direct" => @uri.to_s, "bytes" => bytes, "crc" => crc}
            rescue SystemCallError, SocketError, IOError, Timeout::Error, Net::ProtocolError,
              OpenSSL::SSL::SSLError => error
              raise Error, "#{@name} cannot be fetched: #{error.class}: #{error.message}"
            end
          end
        end
      end
    end
  end
end

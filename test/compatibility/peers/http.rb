# frozen_string_literal: true

require "json"
require "zlib"

module Compatibility
  module Peers
    # An HTTP server with persistent connections. Its answers have the number of their request, which clients write as
    # "heddle17" into whatever reaches the server: path, header or body. The script gets a Request; it returns the
    # answer's body as a String, or what becomes JSON, or an Array of status, headers and body.
    class HTTP < Scripted
      Request = Struct.new(:verb, :path, :head, :body) do
        def number = [path, body, head].filter_map { |part| part[/heddle(\d+)/, 1] }.first.to_i

        def [](name) = head[/^#{Regexp.escape(name)}: *(.*?)\r?$/i, 1]
      end

      # Bodies are at least so long: blanks at their end put the middle of an answer into its body.
      LENGTH = 400
      private_constant :LENGTH

      def initialize(tls: false, &script)
        super(&script || ->(request) { {number: request.number} })
        return unless tls

        @context = Certificates.context
        ENV["SSL_CERT_FILE"] = Certificates.authority_file # libraries trust it
      end

      def tls? = !@context.nil?

      private

      def play(socket)
        stream = @context ? OpenSSL::SSL::SSLSocket.new(socket, @context).tap(&:accept) : socket
        while (request = read(stream))
          stream.write(answer(request))
          stream.flush
        end
      end

      def read(stream)
        verb, path = stream.gets&.split
        return unless path

        head = +""
        while (line = stream.gets) && line != "\r\n"
          head << line
        end
        stream.write("HTTP/1.1 100 Continue\r\n\r\n") if head.match?(/^expect: *100-continue/i)
        Request.new(verb, path, head, read_body(stream, head))
      end

      def read_body(stream, head)
        body = +"".b
        if head.match?(/^transfer-encoding: *chunked/i)
          while (size = stream.gets.hex) > 0
            body << stream.read(size)
            stream.gets
          end
          stream.gets
        elsif (length = head[/^content-length: *(\d+)/i, 1].to_i) > 0
          body << stream.read(length)
        end
        head.match?(/^content-encoding: *gzip/i) ? Zlib.gunzip(body) : body
      end

      def answer(request)
        status, headers, body = parts(@script.call(request))
        body = body.b.ljust(LENGTH)
        fields = {"Content-Length" => body.bytesize, **headers}.map { |name, value| "#{name}: #{value}\r\n" }.join
        "HTTP/1.1 #{status} Answer\r\n#{fields}\r\n#{body unless request.verb == "HEAD"}"
      end

      def parts(answer)
        case answer
        in [Integer => status, Hash => headers, String => body] then [status, headers, body]
        in String then [200, {"Content-Type" => "text/plain"}, answer]
        else [200, {"Content-Type" => "application/json"}, JSON.generate(answer)]
        end
      end
    end
  end
end

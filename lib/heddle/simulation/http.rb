# frozen_string_literal: true

module Heddle
  class Simulation
    # A server's side of a connection of HTTP/1.1 (RFC 9112).
    class HTTP
      # The names of fields are in small letters.
      Request = Struct.new(:verb, :path, :fields, :body)

      REASONS = {200 => "OK", 204 => "No Content", 404 => "Not Found", 500 => "Internal Server Error",
                 503 => "Service Unavailable"}.freeze
      private_constant :REASONS

      # @param socket [IO]
      def initialize(socket)
        @socket = socket
      end

      # Answers request after request, until one of the sides closes.
      def serve
        while (request = read)
          write(*parts(yield(request)), request)
          break if request.fields["connection"]&.casecmp?("close")
        end
      end

      private

      def read
        verb, path, = @socket.gets("\r\n")&.split
        return unless path

        fields = {}
        while (line = @socket.gets("\r\n", chomp: true)) && !line.empty?
          name, value = line.split(":", 2)
          fields[name.downcase] = value.to_s.strip
        end
        Request.new(verb, path, fields, body(fields)) if line
      end

      def body(fields)
        @socket.write("HTTP/1.1 100 Continue\r\n\r\n") if fields["expect"]&.casecmp?("100-continue")
        return chunks if fields["transfer-encoding"]&.match?(/chunked/i)

        length = fields["content-length"].to_i
        length.zero? ? "" : @socket.read(length)
      end

      def chunks
        whole = +""
        while (size = @socket.gets("\r\n").to_s.hex).positive?
          whole << @socket.read(size)
          @socket.gets("\r\n")
        end
        nil until ["", nil].include?(@socket.gets("\r\n", chomp: true)) # trailers
        whole
      end

      def parts(answer)
        case answer
        when Integer then [answer, {}, ""]
        when Array then answer
        else [200, {}, answer.to_s]
        end
      end

      def write(status, fields, body, request)
        head = "HTTP/1.1 #{status} #{REASONS[status]}\r\n"
        fields = {"content-length" => body.bytesize}.merge(fields) unless status == 204
        fields.each { |name, value| head << "#{name}: #{value}\r\n" }
        head << "\r\n"
        head << body unless request.verb == "HEAD" || status == 204
        @socket.write(head)
      end
    end
  end
end

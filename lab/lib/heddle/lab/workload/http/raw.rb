# frozen_string_literal: true

require "socket"

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # Hardly any HTTP: what Ruby's sockets cost alone. It knows the load server, and the least of what other servers send.
        class Raw < Client
          implements "raw" => self

          PIECE = 65_536
          private_constant :PIECE

          # @see Client.versions
          def self.versions
            require "openssl"
            ["TCPSocket", OpenSSL::OPENSSL_LIBRARY_VERSION[/\AOpenSSL \S+/]]
          end

          # @see Client#each_chunk
          def each_chunk(&block)
            connected do |socket|
              head, rest = ask(socket)
              if @gzip then inflate(socket, head, rest, &block)
              elsif head.match?(/^transfer-encoding: *chunked/i) then chunked(socket, rest, &block)
              else plain(socket, head, rest, &block)
              end
            end
          end

          # @see Client#string
          def string
            return gather if @gzip

            connected do |socket|
              head, rest = ask(socket)
              length = length_of(head)
              next gather_from(socket, head, rest) unless length

              rest << socket.read(length - rest.bytesize)
            end
          end

          # @see Client#file
          def file(path)
            File.open(path, "wb") do |file|
              next each_chunk { |chunk| file.write(chunk) } if tls? || @gzip

              connected do |socket|
                head, rest = ask(socket)
                length = length_of(head)
                next gather_from(socket, head, rest) { |chunk| file.write(chunk) } unless length

                file.write(rest)
                file.flush
                IO.copy_stream(socket, file, length - rest.bytesize)
              end
            end
          end

          # @see Client#upload_file
          def upload_file(path) = File.open(path, "rb") { |file| put(file.size) { |socket| IO.copy_stream(file, socket) } }

          # @see Client#upload_string
          def upload_string(body) = put(body.bytesize) { |socket| socket.write(body) }

          private

          def connected
            socket = TCPSocket.new(@uri.host, @uri.port)
            return yield(socket) unless tls?

            context = OpenSSL::SSL::SSLContext.new
            context.set_params(**{ca_file: @ca_file}.compact)
            secure = OpenSSL::SSL::SSLSocket.new(socket, context)
            secure.hostname = @uri.host unless @uri.host.match?(/\A[\d.]+\z/)
            secure.connect
            secure.post_connection_check(@uri.host)
            yield secure
          ensure
            socket&.close
          end

          def request = "GET #{@uri.request_uri} HTTP/1.1\r\nHost: #{@uri.host}\r\n\r\n"

          # @return [Array(String, String)] the head, and what has come of the body
          def ask(socket)
            socket.write(request)
            read_head(socket)
          end

          def read_head(socket)
            bytes = socket.readpartial(PIECE)
            bytes << socket.readpartial(PIECE) until (at = bytes.index("\r\n\r\n"))
            check(bytes[9, 3])
            [bytes.byteslice(0, at + 4), bytes.byteslice(at + 4..)]
          end

          def length_of(head) = head[/^content-length: *(\d+)/i, 1]&.to_i

          def plain(socket, head, rest)
            left = length_of(head) - rest.bytesize
            yield rest unless rest.empty?
            buffer = String.new(capacity: PIECE)
            while left.positive?
              socket.readpartial(PIECE, buffer)
              left -= buffer.bytesize
              yield buffer
            end
          end

          def chunked(socket, rest)
            buffer = rest
            loop do
              buffer << socket.readpartial(PIECE) until (at = buffer.index("\r\n"))
              size = buffer.byteslice(0, at).hex
              return if size.zero?

              buffer << socket.readpartial(PIECE) while buffer.bytesize < at + size + 4
              yield buffer.byteslice(at + 2, size)
              buffer = buffer.byteslice(at + size + 4..)
            end
          end

          def inflate(socket, head, rest, &block)
            inflater = Zlib::Inflate.new(32 + Zlib::MAX_WBITS)
            plain(socket, head, rest) { |piece| inflater.inflate(piece, &block) }
          ensure
            inflater&.close
          end

          def gather
            body = +""
            each_chunk { |chunk| body << chunk }
            body
          end

          # A body in chunks.
          def gather_from(socket, _head, rest, &block)
            return chunked(socket, rest, &block) if block

            body = +""
            chunked(socket, rest) { |chunk| body << chunk }
            body
          end

          def put(length)
            connected do |socket|
              socket.write("PUT #{@uri.request_uri} HTTP/1.1\r\nHost: #{@uri.host}\r\nContent-Length: #{length}\r\n\r\n")
              yield socket
              head, rest = read_head(socket)
              rest << socket.readpartial(PIECE) while rest.bytesize < length_of(head)
              rest
            end
          end

          def keep_alive
            connected do |socket|
              bytes = request
              nil while yield(answer(socket, bytes))
            end
          end

          def answer(socket, bytes)
            socket.write(bytes)
            socket.readpartial(PIECE).split("\r\n\r\n", 2).last
          end

          def one(_) = connected { |socket| answer(socket, request) }
        end
      end
    end
  end
end

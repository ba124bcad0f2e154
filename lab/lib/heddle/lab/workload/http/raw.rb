# frozen_string_literal: true

require "socket"

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # The cost of Ruby's sockets alone, with hardly any HTTP: it parses the load server's replies, and only the most
        # common ones of other servers.
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
          def each_chunk(&block) = asked { |socket, head| pieces(socket, head, &block) }

          # @see Client#string
          def string
            asked do |socket, head|
              next socket.read(length_of(head)) if whole?(head)

              body = +""
              pieces(socket, head) { |piece| body << piece }
              body
            end
          end

          # @see Client#file
          def file(path)
            File.open(path, "wb") do |file|
              asked do |socket, head|
                if whole?(head)
                  IO.copy_stream(socket, file, length_of(head))
                else
                  pieces(socket, head) { |piece| file.write(piece) }
                end
              end
            end
          end

          # @see Client#upload_file
          def upload_file(path)
            File.open(path, "rb") { |file| put(file.size) { |socket| IO.copy_stream(file, socket) } }
          end

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

          # @yieldparam socket [TCPSocket, OpenSSL::SSL::SSLSocket] with the body before it
          # @yieldparam head [String]
          def asked
            connected do |socket|
              socket.write(request)
              yield socket, read_head(socket)
            end
          end

          def read_head(socket)
            head = socket.gets("\r\n\r\n") or raise EOFError, "the server has closed"
            check(head[9, 3])
            head
          end

          def length_of(head) = head[/^content-length: *(\d+)/i, 1]&.to_i

          # Whether the bytes of the socket are those of the body, and their number is known.
          def whole?(head) = length_of(head) && !tls? && !@gzip

          def pieces(socket, head, &block)
            return chunked(socket, &block) unless length_of(head)

            @gzip ? inflate(socket, head, &block) : sized(socket, length_of(head), &block)
          end

          def sized(socket, left)
            buffer = String.new(capacity: PIECE)
            while left.positive?
              left -= socket.readpartial(PIECE, buffer).bytesize
              yield buffer
            end
          end

          def chunked(socket)
            piece, ending = String.new(capacity: PIECE), +""
            while (size = socket.gets.hex).positive?
              yield socket.read(size, piece)
              socket.read(2, ending)
            end
          end

          def inflate(socket, head, &block)
            inflater = Zlib::Inflate.new(32 + Zlib::MAX_WBITS)
            sized(socket, length_of(head)) { |piece| inflater.inflate(piece, &block) }
          ensure
            inflater&.close
          end

          def put(length)
            connected do |socket|
              socket.write("PUT #{@uri.request_uri} HTTP/1.1\r\nHost: #{@uri.host}\r\n" \
                "Content-Length: #{length}\r\n\r\n")
              yield socket
              socket.read(length_of(read_head(socket)))
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

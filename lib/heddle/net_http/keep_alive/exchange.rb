# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # One call of `transport_request` on a connection that may be kept, unless it is a usual one. Sets the header
      # Connection, repeats a request that found the connection closed, and decides whether the connection can be kept
      # afterwards.
      class Exchange
        # Errors of a connection that the server has closed. A timeout does not prove that the server has closed it.
        CLOSED = [IOError, Errno::ECONNRESET, Errno::ECONNABORTED, Errno::EPIPE].freeze
        # Authentication of the connection, not of the request (RFC 4559; NTLM the same).
        OF_THE_CONNECTION = /\A\s*(?:NTLM|Negotiate)\b/i
        private_constant :CLOSED, :OF_THE_CONNECTION

        # @param http [Net::HTTP]
        # @param request [Net::HTTPGenericRequest]
        def initialize(http, request)
          @http = http
          @request = request
          @sent = fields(request)
        end

        # Makes a request that has begun, as the library does.
        #
        # @param buffered [Net::BufferedIO] of the connection
        # @return [Net::HTTPResponse]
        def run(connection, buffered, &block)
          note_stream
          implied = drop_implied_close
          prepare(connection) if connection.awaiting
          finish_with(make(&block))
        rescue => error
          recover(error, connection, buffered, &block)
        ensure
          @sent["connection"] = implied if implied
        end

        # The first request on a kept connection has failed before an answer began. Until then the library must not
        # retry by itself. If the server has closed the idle connection, the server may be well: the request gets all
        # the retries that it would have on a new connection. Any other failure uses up one retry, as on a new
        # connection.
        #
        # @return [Net::HTTPResponse]
        def recover(error, connection, buffered, &block)
          raise error unless connection.awaiting.equal?(@http) && failure?(error) && repeatable?

          unprocessed = closed?(error) && !Library.unread?(buffered)
          Library.answered(buffered) # gives the retries back
          retries = @http.max_retries
          again = unprocessed ? retries : retries - 1
          raise error if again < 0 || !@http.started?

          KeepAlive.found_stale if unprocessed
          rewind
          finish_with(repeat(again, retries, &block))
        end

        # Decides whether the connection may be kept. The library may have connected again meanwhile.
        def finish(response)
          # Otherwise it has closed the connection.
          ended = @http.instance_variable_get(:@last_communicated) or return

          connection = KeepAlive.connection_of(@http) or return
          received = fields(response)
          connection.bind if bound?(received)
          seconds = received.key?("keep-alive") ? seconds_left(received) : KeepAlive.idle
          return unless seconds && plain? && exact?(response, received) && sent_whole?

          @sent.key?("expect") ? connection.doubt : connection.rest(ended, seconds)
        end

        private

        def make(&block) = @http.__send__(:transport_request_without_heddle, @request, &block)

        def finish_with(response)
          finish(response) unless Library.settled?(@http, @request, response)
          response
        end

        def fields(message) = message.instance_variable_get(:@header)

        # Bytes that have come since the session began belong to an earlier session: closes the connection, and the
        # library connects again. Also keeps the library from retrying by itself, and from looking once more.
        def prepare(connection)
          connection.close unless connection.quiet?
          Library.trust(@http)
          Library.await(connection, @http) if Library.idempotent?(@http, @request.method)
        end

        # A request without a session carries a "close" of the library's own, which is not the program's wish.
        def drop_implied_close
          implied = Library.implied(@request)
          return unless implied && @sent["connection"].equal?(implied)

          @sent["connection"] = ["keep-alive"]
          implied
        end

        def repeat(again, retries, &block)
          @http.instance_variable_set(:@max_retries, again)
          make(&block)
        ensure
          @http.instance_variable_set(:@max_retries, retries)
        end

        def failure?(error) = closed?(error) || error.is_a?(Timeout::Error) || error.is_a?(Errno::ETIMEDOUT)

        def closed?(error) = [*CLOSED, *tls_errors].any? { |klass| error.is_a?(klass) }

        def tls_errors = defined?(OpenSSL::SSL::SSLError) ? [OpenSSL::SSL::SSLError] : []

        # A stream has been read when its request fails. Stock would send the rest of it, and wait for an answer.
        def repeatable?
          data = @request.instance_variable_get(:@body_data)
          return data.is_a?(Enumerable) && data.all? { |_, value| value.nil? || value.is_a?(String) } if data

          stream = @request.body_stream
          stream.nil? || (!@position.nil? && stream.respond_to?(:seek))
        end

        def rewind = @position && @request.body_stream.seek(@position)

        # Notes where the body's stream begins, or else how many bytes it has: the library sends all that the stream
        # returns, and checks no length.
        def note_stream
          stream = @request.body_stream or return
          @position = stream.pos if stream.respond_to?(:pos)
        rescue
          nil # a pipe, say
        ensure
          @size = size_unread(stream) if stream && !@position
        end

        # If a stream has a size but no position, only the first body that is sent from it is certain to be whole.
        def size_unread(stream)
          return if stream.frozen? || Library.sent(stream)

          Library.set_sent(stream, true)
          %i[size length].each { |name| return stream.public_send(name) if stream.respond_to?(name) }
          nil
        rescue
          nil
        end

        # Whether the request had exactly the body that its headers announce. Otherwise the server takes the next
        # request for the rest of this one.
        def sent_whole?
          return true if @request.body || @request.instance_variable_get(:@body_data)

          coding, length = @sent["transfer-encoding"], @sent["content-length"]
          stream = @request.body_stream or return !coding && (!length || length == ["0"])
          return !length && coding.size == 1 && coding[0].casecmp?("chunked") if coding

          length&.size == 1 && length[0] == sent_of(stream).to_s
        end

        def sent_of(stream)
          @position ? stream.pos - @position : @size
        rescue
          nil # closed, say
        end

        def bound?(received)
          of_the_connection?(@sent, "authorization", "proxy-authorization") ||
            of_the_connection?(received, "www-authenticate", "proxy-authenticate")
        end

        def of_the_connection?(fields, one, other)
          fields[one]&.any?(OF_THE_CONNECTION) || fields[other]&.any?(OF_THE_CONNECTION)
        end

        # After these requests the bytes on the connection may be something else than answers.
        def plain? = @request.method != "CONNECT" && !@sent.key?("upgrade")

        # Whether the answer's end is beyond doubt: of two lengths the server may mean the other one (RFC 9112, 6.3).
        def exact?(response, received)
          coding, length = received["transfer-encoding"], received["content-length"]
          head, reads = @request.method == "HEAD", @request.response_body_permitted?
          return head && !reads if head || !reads # a request of the program's own kind may read too much or too little
          return true if response.code == "304"
          return !coding && (length ? length == ["0"] : response.code == "204") unless response.class.body_permitted?
          return false unless Library.whole?(@http, response)
          return length&.size == 1 && length[0].match?(/\A\d+\z/) unless coding

          !length && coding.size == 1 && coding[0].casecmp?("chunked") && response.http_version != "1.0"
        end

        # @return [Float, nil] how long the connection may rest; nil if it is used up
        def seconds_left(received)
          announced = received["keep-alive"].join(",")
          return if announced.match?(/\bmax\s*=\s*"?0*\b(?!\d)/i)

          # The server counts from when it has sent the answer: half a second or half of the time is for the way.
          seconds = announced[/\btimeout\s*=\s*"?(\d+)/i, 1]&.to_i
          seconds ? [KeepAlive.idle, [seconds - 0.5, seconds / 2.0].min].min : KeepAlive.idle
        end
      end
    end
  end
end

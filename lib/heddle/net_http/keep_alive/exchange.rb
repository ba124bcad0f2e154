# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # What an exchange on a connection that may be kept asks of the program's own objects: how many bytes of a
      # request's stream were sent, and whether a request that found the connection closed can be sent again. All else
      # is in C (ext/heddle/net_http/exchange.c).
      class Exchange
        # Errors of a connection that the server has closed. A timeout does not prove that the server has closed it.
        CLOSED = [IOError, Errno::ECONNRESET, Errno::ECONNABORTED, Errno::EPIPE].freeze
        private_constant :CLOSED

        # Notes where the body's stream begins, or else how many bytes it has: the library sends all that the stream
        # returns, and checks no length.
        #
        # @param request [Net::HTTPGenericRequest] not sent yet
        def initialize(request)
          @request = request
          @stream = request.body_stream or return
          @position = @stream.pos if @stream.respond_to?(:pos)
        rescue
          nil # a pipe, say
        ensure
          @size = size_unread if @stream && !@position
        end

        # @return [Integer, nil] bytes of the stream that have been sent, if that is known
        def sent
          @position ? @stream.pos - @position : @size
        rescue
          nil # closed, say
        end

        # The first request on a persistent connection has failed before an answer began. Until then the library must
        # not retry by itself. If the server has closed the idle connection, the server may be well: the request gets
        # all the retries that it would have on a new connection. Any other failure uses up one retry, as on a new
        # connection.
        #
        # @param buffered [Net::BufferedIO] of the connection
        # @return [Net::HTTPResponse]
        def recover(http, error, buffered, &block)
          raise error unless failure?(error) && repeatable?

          unprocessed = closed?(error) && !KeepAlive.unread?(buffered)
          KeepAlive.answered(buffered) # gives the retries back
          retries = http.max_retries
          again = unprocessed ? retries : retries - 1
          raise error if again < 0 || !http.started?

          KeepAlive.found_stale if unprocessed
          @stream.seek(@position) if @position
          repeat(http, again, retries, &block)
        end

        private

        def repeat(http, again, retries, &block)
          http.instance_variable_set(:@max_retries, again)
          http.__send__(:transport_request_without_heddle, @request, &block)
        ensure
          http.instance_variable_set(:@max_retries, retries)
        end

        def failure?(error) = closed?(error) || error.is_a?(Timeout::Error) || error.is_a?(Errno::ETIMEDOUT)

        def closed?(error) = [*CLOSED, *tls_errors].any? { |klass| error.is_a?(klass) }

        def tls_errors = Object.const_defined?("OpenSSL::SSL::SSLError") ? [OpenSSL::SSL::SSLError] : []

        # A stream has been read when its request fails. Stock would send the rest of it, and wait for an answer.
        def repeatable?
          data = @request.instance_variable_get(:@body_data)
          return data.is_a?(Enumerable) && data.all? { |_, value| value.nil? || value.is_a?(String) } if data

          @stream.nil? || (!@position.nil? && @stream.respond_to?(:seek))
        end

        # If a stream has a size but no position, only the first body that is sent from it is certain to be whole.
        def size_unread
          return if @stream.frozen? || KeepAlive.sent(@stream)

          KeepAlive.set_sent(@stream, true)
          %i[size length].each { |name| return @stream.public_send(name) if @stream.respond_to?(name) }
          nil
        rescue
          nil
        end
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP#transport_request`. In Ruby, because C code cannot pass its block on without making an object.
    #
    # @api private
    module TransportRequest
      # Notes that the library itself begins the request, and what its end says of a connection that may be kept.
      def transport_request(request, &block)
        socket = @socket
        kept = TransportRequest.begun(self, socket, request)
        exchange = KeepAlive::Exchange.new(request) if kept && request.body_stream
        response = transport_request_without_heddle(request, &block)
        KeepAlive.settle(self, request, response, exchange&.sent) if kept
        response
      rescue => error
        raise unless kept && KeepAlive.connection(socket)&.holds_retries?(self)

        exchange ||= KeepAlive::Exchange.new(request)
        response = exchange.recover(self, error, socket, &block)
        KeepAlive.settle(self, request, response, exchange.sent)
        response
      ensure
        TransportRequest.ended(self)
      end
      private :transport_request
    end
    private_constant :TransportRequest
  end
end

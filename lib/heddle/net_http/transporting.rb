# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP#transport_request`. In Ruby, because C code cannot pass its block on without making an object.
    #
    # @api private
    module Transporting
      # Notes that the library itself begins the request, and what its end says of a connection that may be kept.
      def transport_request(request, &block)
        socket = @socket
        kept = Library.transports(self, socket, request)
        exchange = KeepAlive::Exchange.new(request) if kept && request.body_stream
        response = transport_request_without_heddle(request, &block)
        Library.settle(self, request, response, exchange&.sent) if kept
        response
      rescue => error
        raise unless kept && Library.connection(socket)&.awaiting.equal?(self)

        exchange ||= KeepAlive::Exchange.new(request)
        response = exchange.recover(self, error, socket, &block)
        Library.settle(self, request, response, exchange.sent)
        response
      ensure
        Library.transported(self)
      end
      private :transport_request
    end
    private_constant :Transporting
  end
end

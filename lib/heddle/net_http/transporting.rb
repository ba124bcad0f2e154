# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP#transport_request`. In Ruby, because C code cannot pass its block on without making an object.
    #
    # @api private
    module Transporting
      # Notes that the library itself begins the request. A usual request on a connection that may be kept needs no
      # Exchange.
      def transport_request(request, &block)
        socket = @socket
        usual = Library.transports(self, socket, request)
        return transport_request_without_heddle(request, &block) if usual.nil?
        return KeepAlive::Exchange.new(self, request).run(Library.connection(socket), socket, &block) unless usual

        response = transport_request_without_heddle(request, &block)
        KeepAlive::Exchange.new(self, request).finish(response) unless Library.settled?(self, request, response)
        response
      rescue => error
        raise unless usual && (connection = Library.connection(socket))&.awaiting.equal?(self)

        KeepAlive::Exchange.new(self, request).recover(error, connection, socket, &block)
      ensure
        Library.transported(self)
      end
      private :transport_request
    end
    private_constant :Transporting
  end
end

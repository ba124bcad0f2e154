# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP#transport_request`. In Ruby, because C code cannot pass its block on without making an object.
    #
    # @api private
    module Transporting
      # Notes that the library itself begins the request.
      def transport_request(request, &block)
        connection = Library.transports(self)
        return transport_request_without_heddle(request, &block) unless connection

        KeepAlive::Exchange.new(self, request).run(connection, @socket, &block)
      ensure
        Library.transported(self)
      end
      private :transport_request
    end
    private_constant :Transporting
  end
end

# frozen_string_literal: true

module Heddle
  module PumaSupport
    # The body of a response that Puma asks for one piece after another. When the client leaves, the task that waits for
    # the next piece is told, with the error that Puma would raise at the next write.
    #
    # @api private
    class Stream
      # A body with one of these Puma sends without waiting for the application.
      AT_HAND = %i[to_ary to_path filename].freeze
      private_constant :AT_HAND

      class << self
        # @param response [Object] what the application has returned
        # @param client [Puma::Client]
        # @return [Object] the response; its body is a Stream if it has to be one
        def of(response, client)
          return response unless response.is_a?(Array) && stream?(body = response[2])

          [response[0], response[1], new(body, client.to_io)]
        end

        private

        # A body without `each`, which Rack calls with the connection, reads from that itself.
        def stream?(body) = AT_HAND.none? { |name| body.respond_to?(name) } && body.respond_to?(:each)
      end

      def initialize(body, socket)
        @body = body
        @socket = socket
      end

      def each(&block)
        left = ::Puma::ConnectionError.new("the client has left")
        Task.interrupt_at_hang_up(@socket, left) { @body.each(&block) }
      end

      def close
        @body.close if @body.respond_to?(:close)
      end
    end
    private_constant :Stream
  end
end

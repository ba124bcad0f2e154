# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      # falcon in this process.
      module Falcon
        private

        # @return [Array<String>] versions
        def load_falcon
          versions = [load_gem("falcon", "falcon/server"), load_gem("async-http", "async/http/endpoint")]
          require "protocol/rack"
          versions
        end

        # Starts it, for as long as the measured task runs.
        #
        # @param app [#call] of Rack
        # @return [Integer] its port
        def start_falcon(app)
          # falcon 0.51 calls it middleware.
          name = ::Falcon::Server.respond_to?(:rack_middleware) ? :rack_middleware : :middleware
          middleware = ::Falcon::Server.public_send(name, app, cache: false)
          endpoint = ::Async::HTTP::Endpoint.parse("http://127.0.0.1:0").bound
          server = ::Falcon::Server.new(middleware, endpoint,
            protocol: ::Async::HTTP::Protocol::HTTP1, scheme: "http")
          ::Async::Task.current.async(transient: true) { server.run }
          endpoint.sockets.first.to_io.local_address.ip_port
        end
      end
      private_constant :Falcon
    end
  end
end

# frozen_string_literal: true

require "rbconfig"
require "heddle/lab/affinity"

module Heddle
  module Lab
    class Workload
      class Async < Workload
        # Requests by async-http to the load server, and to falcon from a process of its own.
        module HTTP
          REQUESTS = File.expand_path("../../requests_main.rb", __dir__)
          HELLO = "hello world"
          CONNECTIONS = 16
          private_constant :REQUESTS, :HELLO, :CONNECTIONS

          private

          # Loads what these operations need beside Async.
          # @return [Array<String>] the versions that there are
          def prepare_http
            case @params["operation"]
            when "client" then load_gem("async-http", "async/http")
            when "falcon"
              load_gem("falcon", "falcon/server")
              require "async/http/endpoint"
              require "protocol/rack"
            end
            Gem.loaded_specs.values_at("async-http", "falcon").compact.map { |gem| "#{gem.name} #{gem.version}" }
          end

          # As many at once as falcon gets.
          def measure_client(count)
            endpoint = ::Async::HTTP::Endpoint.parse("http://127.0.0.1:#{@params.fetch("port")}")
            ::Async::HTTP::Client.open(endpoint) do |client|
              each = [count / CONNECTIONS, 1].max
              tasks = Array.new(CONNECTIONS) { start { each.times { client.get("/0").finish } } }
              tasks.each(&:wait)
              each * CONNECTIONS
            end
          end

          def measure_falcon(count)
            @asker ||= serve
            @asker.puts(count)
            wrong = @asker.gets or raise "the process that makes the requests has ended"
            raise "#{wrong.strip} of #{count} answers were wrong" unless wrong.to_i.zero?

            count
          end

          # Starts falcon in this process, and the process that makes its requests.
          def serve
            app = ->(_) { [200, {"content-type" => "text/plain"}, [HELLO]] }
            # falcon 0.51 calls it middleware.
            name = ::Falcon::Server.respond_to?(:rack_middleware) ? :rack_middleware : :middleware
            middleware = ::Falcon::Server.public_send(name, app, cache: false)
            endpoint = ::Async::HTTP::Endpoint.parse("http://127.0.0.1:0").bound
            port = endpoint.sockets.first.to_io.local_address.ip_port
            server = ::Falcon::Server.new(middleware, endpoint,
              protocol: ::Async::HTTP::Protocol::HTTP1, scheme: "http")
            ::Async::Task.current.async(transient: true) { server.run } # runs until the measured task has ended
            IO.popen([*Affinity.prefix(@params["server_core"]), RbConfig.ruby, "--disable=gems", REQUESTS, "127.0.0.1",
              port.to_s, "/", HELLO, CONNECTIONS.to_s], "r+")
          end
        end
      end
    end
  end
end

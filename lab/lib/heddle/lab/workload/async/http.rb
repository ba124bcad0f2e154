# frozen_string_literal: true

require "heddle/lab/requests"
require "heddle/lab/workload/falcon"

module Heddle
  module Lab
    class Workload
      class Async < Workload
        # Requests by async-http to the load server, and to falcon from a process of its own.
        module HTTP
          HELLO = "hello world"
          CONNECTIONS = 16
          private_constant :HELLO, :CONNECTIONS
          include Falcon

          private

          # Loads what these operations need beside Async.
          # @return [Array<String>] the versions that there are
          def prepare_http
            case @params["operation"]
            when "client" then load_gem("async-http", "async/http")
            when "falcon" then load_falcon
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
            @requests ||= serve
            @requests.make(count)
            count
          end

          # Starts falcon in this process, and the process that makes its requests.
          def serve
            port = start_falcon(->(_) { [200, {"content-type" => "text/plain"}, [HELLO]] })
            Requests.new("127.0.0.1", port, "/", HELLO, CONNECTIONS, core: @params["server_core"])
          end
        end
      end
    end
  end
end

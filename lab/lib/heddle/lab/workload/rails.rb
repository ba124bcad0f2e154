# frozen_string_literal: true

require "heddle/lab/workload"
require "heddle/lab/requests"

module Heddle
  module Lab
    class Workload
      # Pages of a Rails application, which a server in this process serves. Another process asks for them.
      class Rails < Workload
        for_bench "rails"

        CONNECTIONS = 25 # to the database

        # @see Workload#prepare
        def prepare
          versions = [load_gem("railties", "rails"), load_gem("pg")]
          require "active_record/railtie"
          require "action_controller/railtie"
          require "net/http"
          require "heddle/lab/workload/rails/#{(@kind == "falcon") ? "on_falcon" : "on_puma"}"
          extend((@kind == "falcon") ? OnFalcon : OnPuma)

          versions + load_server
        end

        # @see Workload#perform
        def perform(meter)
          boot
          serve { |port| measure(meter, port) }
        end

        private

        def boot
          ENV["RAILS_ENV"] = "production"
          ENV["DATABASE_URL"] = "#{@params["database"]}?pool=#{CONNECTIONS}"
          require "heddle/lab/workload/rails/application"
          Application.config.active_support.isolation_level = (@kind == "threads") ? :thread : :fiber
          Application.config.x.called = URI("http://127.0.0.1:#{@params["port"]}/#{@params["delay"]}")
          Application.config.x.computing = @params["computing"] / 1000.0
          Application.initialize!
          Application.create_table
        end

        def measure(meter, port)
          pages = requests(port, @params["page"], @params["clients"])
          beside = requests(port, @params["beside"], 1) if @params["beside"]
          pages.make(@params["clients"])
          beside&.make(1)
          meter.measure do
            computing = Thread.new { loop { beside.make(1) } } if beside
            count = self.count
            {"operations" => count, **pages.make(count)}
          ensure
            computing&.kill
          end
        end

        def requests(port, page, clients)
          Requests.new("127.0.0.1", port, "/#{page}", Application::BODY, clients, core: @params["server_core"])
        end

        # Few threads would take minutes for all pages that wait.
        def count
          count, clients, seconds, delay = @params.values_at("count", "clients", "seconds", "delay")
          return count unless @kind == "threads" && @params["page"] == "waiting"

          (@argument * seconds / (3 * delay / 1000.0)).ceil.clamp(clients, count)
        end
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class Jobs < Workload
        # Sidekiq's threads, or Heddle's fibers in their place.
        module OnSidekiq
          # @see Workload#prepare
          def prepare
            versions = [load_gem("sidekiq"), *([load_gem("pg")] if @params["job"] == "mixed")]
            require "sidekiq/embedded"
            require "net/http"
            require "heddle/lab/workload/jobs/classes"
            return versions unless @kind == "fibers"

            versions += load_heddle
            require "heddle/sidekiq"
            versions
          end

          private

          # Enqueues the jobs.
          def fill(count)
            ::Sidekiq.configure_client do |config|
              config.redis = {url: @params["redis"]}
              config.logger.level = ::Logger::WARN
            end
            Jobs.uri = URI("http://127.0.0.1:#{@params["port"]}/50")
            ::Sidekiq.redis { |redis| redis.call("FLUSHALL") }
            klass = Classes.const_get(@params["job"].capitalize)
            Array.new(count) { [] }.each_slice(BATCH) do |arguments|
              ::Sidekiq::Client.push_bulk("class" => klass, "args" => arguments)
            end
          end

          # @return [#call] starts to run jobs in this process
          def embed
            size = (@kind == "threads") ? @argument : [CONNECTIONS, @argument].min
            Jobs.database = ::ConnectionPool.new(size: size, timeout: 60) { PG.connect(@params["database"]) }
            ::Sidekiq.configure_embed do |config|
              config.redis = {url: @params["redis"]}
              config.logger.level = ::Logger::WARN
              (@kind == "fibers") ? config.heddle(fibers: @argument) : config.concurrency = @argument
            end.method(:run)
          end
        end
        private_constant :OnSidekiq
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class Jobs < Workload
        # Workers of Solid Queue on PostgreSQL: with threads, with fibers on Async's own loop, and with fibers on
        # Heddle's. All have the same number of connections.
        module OnSolidQueue
          # @see Workload#prepare
          def prepare
            versions = [load_gem("railties", "rails"), load_gem("pg")]
            require "active_record/railtie"
            require "active_job/railtie"
            versions << load_gem("solid_queue")
            versions += load_async unless @kind == "solid_threads"
            return versions unless @kind == "solid_heddle"

            versions += load_heddle
            require "heddle/async"
            versions
          end

          private

          # Enqueues the jobs, in new tables.
          def fill(count)
            ENV["RAILS_ENV"] = "production"
            ENV["DATABASE_URL"] = "#{@params["database"]}?pool=#{CONNECTIONS}"
            require "heddle/lab/workload/jobs/application"
            Application.config.active_support.isolation_level = (@kind == "solid_threads") ? :thread : :fiber
            Application.initialize!
            Application.create_tables
            Array.new(count) { Application.job(@params["job"]) }.each_slice(BATCH) do |jobs|
              ActiveJob.perform_all_later(jobs)
            end
            ActiveRecord::Base.connection_handler.clear_all_connections!
          end

          # @return [#call] starts to run jobs in this process
          def embed
            size = (@kind == "solid_threads") ? {threads: @argument} : {fibers: @argument}
            SolidQueue::Worker.new(queues: "*", polling_interval: 0.05, **size).method(:start)
          end
        end
        private_constant :OnSolidQueue
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class Jobs < Workload
        # Workers of Solid Queue on PostgreSQL: with threads, with fibers on Async's own loop, and with fibers on
        # Heddle's. All have the same number of connections, which jobs before the measured ones open: that takes as
        # long as some hundred jobs.
        module OnSolidQueue
          WARM_UP = 200
          private_constant :WARM_UP

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

          # Makes new tables, with the jobs of the warm-up.
          def fill(_count)
            ENV["RAILS_ENV"] = "production"
            ENV["DATABASE_URL"] = "#{@params["database"]}?pool=#{CONNECTIONS}"
            require "heddle/lab/workload/jobs/application"
            Application.config.active_support.isolation_level = (@kind == "solid_threads") ? :thread : :fiber
            Application.initialize!
            Application.create_tables
            enqueue(WARM_UP, (@params["job"] == "together") ? "empty" : @params["job"])
            ActiveRecord::Base.connection_handler.clear_all_connections!
          end

          # @see Jobs#warm_up
          def warm_up(members)
            members.each(&:start)
            await(members, WARM_UP)
            WARM_UP
          end

          # The workers see the jobs when the transaction ends.
          #
          # @see Jobs#begin_work
          def begin_work(members, count)
            ActiveRecord::Base.transaction do
              enqueue(count)
              members.each(&:look)
              [Clock.now, members.sum(&:cpu)]
            end
          end

          def enqueue(count, name = @params["job"])
            Array.new(count) { Application.job(name) }.each_slice(BATCH) do |jobs|
              ActiveJob.perform_all_later(jobs)
            end
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

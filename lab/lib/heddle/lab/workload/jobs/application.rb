# frozen_string_literal: true

require "logger"

module Heddle
  module Lab
    class Workload
      class Jobs < Workload
        # The least application of Rails that Solid Queue runs in.
        class Application < ::Rails::Application
          config.root = __dir__
          config.load_defaults "#{::Rails::VERSION::MAJOR}.#{::Rails::VERSION::MINOR}"
          config.eager_load = true
          config.secret_key_base = "0" * 64
          config.logger = ::Logger.new($stderr)
          config.log_level = :error # Rails sets the logger to it
          config.active_job.queue_adapter = :solid_queue

          class << self
            # Makes Solid Queue's tables anew.
            def create_tables
              ActiveRecord::Schema.verbose = false
              load "#{Gem.loaded_specs.fetch("solid_queue").full_gem_path}/lib/generators/solid_queue/install/" \
                "templates/db/queue_schema.rb"
            end

            # @param name [String] "waiting", "together" or "empty"
            # @return [ActiveJob::Base]
            def job(name) = const_get("#{name.capitalize}Job").new
          end

          # Enqueued within a transaction, which hides it from the workers until they are measured.
          class HiddenJob < ActiveJob::Base
            self.enqueue_after_transaction_commit = false
          end

          # Does nothing.
          class EmptyJob < HiddenJob
            def perform = Jobs.ended!
          end

          # Waits.
          class WaitingJob < HiddenJob
            def perform
              sleep(Jobs.wait)
              Jobs.ended!
            end
          end

          # Waits while all others do.
          class TogetherJob < WaitingJob
            def perform
              Jobs.began!
              super
            end
          end
        end
        private_constant :Application
      end
    end
  end
end

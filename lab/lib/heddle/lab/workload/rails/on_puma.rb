# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class Rails < Workload
        # Puma, as its command runs it: with threads, or with plugin :heddle.
        module OnPuma
          private

          def load_server
            versions = [load_gem("puma")]
            %w[configuration launcher events].each { |file| require "puma/#{file}" }
            versions += load_heddle if @kind == "fibers"
            versions
          end

          def serve
            launcher = ::Puma::Launcher.new(configuration, log_writer: ::Puma::LogWriter.strings)
            booted = Thread::Queue.new
            launcher.events.after_booted { booted << true }
            Thread.new { launcher.run }.abort_on_exception = true
            booted.pop
            yield launcher.connected_ports.first
          end

          def configuration
            threads = @argument || 1
            ::Puma::Configuration.new(config_files: ["-"]) do |user|
              user.bind "tcp://127.0.0.1:0"
              user.environment "production"
              user.app ::Rails.application
              user.plugin :heddle if @kind == "fibers"
              user.threads threads, threads
              user.max_keep_alive Float::INFINITY # as in falcon
            end
          end
        end
        private_constant :OnPuma
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class Jobs < Workload
        # The jobs.
        module Classes
          # Counts itself at its end.
          class Counted
            include ::Sidekiq::Job

            def perform
              work
              Jobs.ended!
            end
          end

          # Does nothing.
          class Empty < Counted
            def work = nil
          end

          # Waits.
          class Waiting < Counted
            def work = sleep(Jobs.wait)
          end

          # Waits while all others do.
          class Together < Waiting
            def work
              Jobs.began!
              super
            end
          end

          # Asks a database and an HTTP server.
          class Mixed < Counted
            def work
              Jobs.database.with { |database| database.exec("select pg_sleep(0.005)") }
              raise "no page" unless Net::HTTP.get_response(Jobs.uri).is_a?(Net::HTTPOK)
            end
          end
        end
        private_constant :Classes
      end
    end
  end
end

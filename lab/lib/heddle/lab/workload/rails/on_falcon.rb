# frozen_string_literal: true

require "heddle/lab/workload/falcon"

module Heddle
  module Lab
    class Workload
      class Rails < Workload
        # falcon's server, on Async's own loop.
        module OnFalcon
          include Falcon

          private

          def load_server = [*load_async, *load_falcon]

          def serve
            Sync { yield start_falcon(::Rails.application) }
          end
        end
        private_constant :OnFalcon
      end
    end
  end
end

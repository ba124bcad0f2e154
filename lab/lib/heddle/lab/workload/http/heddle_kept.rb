# frozen_string_literal: true

require_relative "heddle"

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # Net::HTTP, accelerated, and its connections kept for later sessions.
        class Kept < Accelerated
          implements "heddle-kept" => self

          # @see Client.versions
          def self.versions = super.tap { Heddle::NetHTTP.keep_alive }

          # @see Client.trouble
          def self.trouble(again:)
            stats = Heddle::NetHTTP.stats
            super || ("no connection was used again: #{stats}" if again && stats.fetch(:reused).zero?)
          end
        end
      end
    end
  end
end

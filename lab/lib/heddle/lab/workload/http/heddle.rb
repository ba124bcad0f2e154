# frozen_string_literal: true

require_relative "stock"

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # Net::HTTP, accelerated.
        class Accelerated < Stock
          implements "heddle" => self

          # @see Client.versions
          def self.versions
            require "heddle/net_http"
            Heddle::NetHTTP.enable unless Heddle::NetHTTP.enabled?
            ["heddle #{Heddle::VERSION}", *super]
          rescue LoadError => error
            raise unless error.path == "heddle/net_http"

            raise LoadError, "this Heddle has no heddle/net_http"
          end

          # @see Client.trouble
          def self.trouble(again:)
            stats = Heddle::NetHTTP.stats
            "nothing went the fast way: #{stats}" if stats.fetch(:fast).zero?
          end
        end
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # NeverBlock's delay table of 2009 (Mohammad A. Ali, "Ruby Networking on Steroids"), on a notebook with two cores.
      module SeedTable
        # Delays in milliseconds.
        DELAYS = [0, 10, 50, 100, 500].freeze

        # Requests a second.
        RATES = {
          "Ruby 1.8 blocking" => [2000, 19, 16, 10, 2],
          "Ruby 1.9 blocking" => [2400, 19, 17, 10, 2],
          "Ruby 1.8 threads" => [1050, 800, 670, 536, 415],
          "Ruby 1.9 threads" => [618, 470, 451, 441, 395],
          "Ruby 1.9 NeverBlock" => [2360, 1997, 1837, 1656, 1031]
        }.freeze

        # NeverBlock over the best threads, per cent.
        ADVANTAGE = [124.76, 149.63, 174.18, 208.96, 148.43].freeze

        module_function

        # @param figures [Array<Numeric>] one of the rows above
        # @param delay [Integer] milliseconds
        # @return [Numeric, nil] nil for a delay that was not measured in 2009
        def at(figures, delay) = DELAYS.index(delay)&.then { |index| figures[index] }
      end
    end
  end
end

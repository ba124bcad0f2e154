# frozen_string_literal: true

module Heddle
  class Simulation
    # For test cases. With minitest:
    #
    #   class OrdersTest < Minitest::Test
    #     include Heddle::Simulation::Helper
    #
    #     def test_an_order_is_placed_once
    #       simulate(seeds: 500) { |world| … }
    #     end
    #   end
    #
    # With RSpec: `RSpec.configure { |config| config.include Heddle::Simulation::Helper }`.
    module Helper
      # {Simulation.run}, which the environment may override: `HEDDLE_SIMULATION_SEEDS=55` (or `1..5000`) replaces the
      # seeds, and `HEDDLE_SIMULATION_TRACE=1` prints what happens. The fewest faults are looked for when a seed fails.
      #
      # @param seeds [Integer, Enumerable<Integer>]
      # @param options see {Simulation.run}
      # @yieldparam world [World]
      # @return [Integer] a digest, see {Simulation.run}
      # @raise [ArgumentError] HEDDLE_SIMULATION_SEEDS is neither a number nor a range
      def simulate(seeds: 100, **options, &block)
        asked = ENV["HEDDLE_SIMULATION_SEEDS"]
        options = {shrink: true, trace: ENV.key?("HEDDLE_SIMULATION_TRACE"), **options}
        Simulation.run(seeds: asked ? Helper.parse(asked) : seeds, **options, &block)
      end

      # @api private
      def self.parse(text)
        match = /\A(\d+)(?:\.\.(\d+))?\z/.match(text) or
          raise ArgumentError, "HEDDLE_SIMULATION_SEEDS must be a seed or a range of seeds, not #{text.inspect}"
        (Integer(match[1])..Integer(match[2] || match[1]))
      end
    end
  end
end

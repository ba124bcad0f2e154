# frozen_string_literal: true

module Heddle
  module Lab
    # The order of the cells. Every round measures every model once per case. The models' order is random in each odd
    # round, and reversed in the even one after it (ABBA), so that neither a drift of the machine nor a neighbour
    # affects only one model.
    class Plan
      # @!attribute round [Integer] from 1
      # @!attribute bench_case [Case]
      # @!attribute model [Model]
      Cell = Struct.new(:round, :bench_case, :model, keyword_init: true)

      include Enumerable

      # @param cases [Array<Case>]
      # @param models [Array<Model>] including twins
      # @param rounds [Integer]
      # @param seed [Integer]
      def initialize(cases:, models:, rounds:, seed:)
        @cases = cases
        @models = models
        @rounds = rounds
        @seed = seed
      end

      # @return [Integer] number of cells
      def size = @rounds * @cases.size * @models.size

      # @yieldparam cell [Cell]
      def each
        random = Random.new(@seed)
        orders = {}
        1.upto(@rounds) do |round|
          @cases.each do |bench_case|
            order =
              orders[bench_case.name] = round.odd? ? @models.shuffle(random: random) : orders[bench_case.name].reverse
            order.each { |model| yield Cell.new(round: round, bench_case: bench_case, model: model) }
          end
        end
      end
    end
  end
end

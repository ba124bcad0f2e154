# frozen_string_literal: true

require_relative "processes"

module Heddle
  class << self
    # Calls the block with each item, many at once: on `fibers` fibers in each of `processes` processes.
    #
    # With one process it is {FiberPool#map}, in this process. With more, the block runs in children of this one
    # ({Processes#map}): its changes in memory are not visible here, and Marshal must be able to dump values, and items
    # that are not the elements of an Array.
    #
    # @param items [#each] if `each` yields several values at once (`each_with_index`), their Array is one item
    # @param fibers [Integer] how many items a process has at once
    # @param processes [Integer]
    # @param errors [Symbol] `:return` makes an item's StandardError its value, and the other items go on
    # @return [Array] the blocks' values, in the order of the items
    # @raise [Exception] the first error, which cancels the rest
    def map(items, fibers: 50, processes: 1, errors: :raise, &block)
      raise ArgumentError, "Heddle.map needs a block to call with each item" unless block

      workers = Processes.new(processes, fibers: fibers)
      return workers.map(items, errors: errors, &block) if processes > 1

      pool = FiberPool.new(fibers)
      begin
        pool.map(items, errors: errors, &block)
      ensure
        pool.close
      end
    end
  end
end

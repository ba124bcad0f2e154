# frozen_string_literal: true

module Heddle
  # What {FiberPool} and {Processes} take items from.
  module Items
    # Before anything is started for them.
    #
    # @raise [TypeError] for what has no `each`
    def self.check(items)
      return if items.respond_to?(:each)

      raise TypeError, "#{items.inspect} has no method each: items are an Array, a Range, an Enumerator or the like"
    end
  end
  private_constant :Items
end

# frozen_string_literal: true

module Heddle
  # Checks the items that {FiberPool} and {Processes} receive.
  module Items
    # Call this before anything is started for the items.
    #
    # @raise [TypeError] when items have no method `each`
    def self.check(items)
      return if items.respond_to?(:each)

      raise TypeError, "#{items.inspect} has no method each: items are an Array, a Range, an Enumerator or the like"
    end
  end
  private_constant :Items
end

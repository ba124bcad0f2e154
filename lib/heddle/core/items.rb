# frozen_string_literal: true

module Heddle
  # Checks the items that {FiberPool} and {Processes} receive, and keeps their errors where that is asked for.
  module Items
    # Call this before anything is started for the items.
    #
    # @raise [TypeError] when items have no method `each`
    def self.check(items)
      return if items.respond_to?(:each)

      raise TypeError, "#{items.inspect} has no method each: items are an Array, a Range, an Enumerator or the like"
    end

    # @param errors [Symbol] `:raise` or `:return`
    # @return [Boolean] whether a StandardError of an item is to be its value
    # @raise [ArgumentError]
    def self.return_errors?(errors)
      return errors == :return if %i[raise return].include?(errors)

      raise ArgumentError, "errors: #{errors.inspect} must be :raise (the first error ends the call) or :return (an " \
        "item's error is its value)"
    end

    # @return [Proc] the block, which returns its StandardError
    def self.returning_errors(block)
      proc do |item|
        block.call(item)
      rescue => error
        error
      end
    end
  end
  private_constant :Items
end

# frozen_string_literal: true

module Heddle
  # Included by all classes of schedulers that wait in a loop of Heddle's: {Scheduler}, and, with `heddle/async`,
  # classes that inherit from Async's.
  #
  # @api private
  module Loop
    class << self
      # The class of the loops that {Heddle.run} and pools make.
      attr_accessor :made_as

      # @return [Loop] a new one
      def make = made_as.new
    end
    self.made_as = Scheduler
  end
end

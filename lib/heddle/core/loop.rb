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
      # @raise [Ractor::UnsafeError] outside the main Ractor
      def make
        made_as.new
      rescue Ractor::UnsafeError => error
        raise error.class, "Heddle runs in the main Ractor only: call Heddle.run there, or let Heddle::Processes use " \
          "all processors", cause: nil
      end
    end
    self.made_as = Scheduler
  end
end

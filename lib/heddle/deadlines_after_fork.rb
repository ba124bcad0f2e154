# frozen_string_literal: true

module Heddle
  # The thread that keeps the deadlines of plain threads is not there in a child of fork; what is open there needs another.
  #
  # @api private
  module DeadlinesAfterFork
    def _fork
      super.tap { |pid| Heddle.keep_deadlines if pid.zero? }
    end

    # Does not go through _fork.
    def daemon(...)
      super.tap { Heddle.keep_deadlines }
    end

    Process.singleton_class.prepend(self)
  end
  private_constant :DeadlinesAfterFork
end

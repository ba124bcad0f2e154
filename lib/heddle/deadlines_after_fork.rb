# frozen_string_literal: true

module Heddle
  # A child of fork lacks the helper thread that keeps the deadlines of plain threads. Starts another helper if the
  # child has open deadlines.
  #
  # @api private
  module DeadlinesAfterFork
    def _fork
      super.tap { |pid| Heddle.keep_deadlines if pid.zero? }
    end

    # Process.daemon does not call _fork.
    def daemon(...)
      super.tap { Heddle.keep_deadlines }
    end

    Process.singleton_class.prepend(self)
  end
  private_constant :DeadlinesAfterFork
end

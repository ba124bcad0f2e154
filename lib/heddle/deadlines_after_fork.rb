# frozen_string_literal: true

module Heddle
  # A child of fork lacks the helper thread that keeps the deadlines of plain threads. Starts another helper if the
  # child has open deadlines. A child that a task forks is no task: it keeps the task's filters for connects.
  #
  # @api private
  module DeadlinesAfterFork
    def _fork
      filters = ConnectFilter.nested
      super.tap do |pid|
        next unless pid.zero?

        Heddle.keep_deadlines
        ConnectFilter.keep(filters)
      end
    end

    # Process.daemon does not call _fork.
    def daemon(...)
      super.tap { Heddle.keep_deadlines }
    end

    Process.singleton_class.prepend(self)
  end
  private_constant :DeadlinesAfterFork
end

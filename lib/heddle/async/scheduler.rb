# frozen_string_literal: true

require_relative "loop"

module Heddle
  # Async::Scheduler on a loop of Heddle's.
  #
  # @api private
  class AsyncScheduler < ::Async::Scheduler
    Scheduler.equip(self)
    include AsyncLoop
  end

  # Async::Reactor on a loop of Heddle's.
  #
  # @api private
  class AsyncReactor < ::Async::Reactor
    Scheduler.equip(self)
    include AsyncLoop
  end

  # The scheduler of {Heddle.run} and of pools. Only transient tasks are left when it closes.
  #
  # @api private
  class AsyncHost < ::Async::Scheduler
    Scheduler.equip(self)
    include AsyncLoop

    def initialize(...)
      super
      measure_load
    end

    # `Fiber.schedule` starts a task of Async's only inside one.
    def fiber(**options, &block)
      ::Async::Task.current? ? super : start_fiber(**options, &block)
    end

    def close
      running = Task.current unless forked?
      Kernel.raise ThreadError, "#{running.inspect} cannot close the scheduler that runs it" if running

      super
    end

    # Async's own runs the transient tasks to their end, which only a blocking fiber may.
    def scheduler_close(error = $!)
      Fiber.blocking? ? super : super(error || true)
    end
  end
  private_constant :AsyncScheduler, :AsyncReactor, :AsyncHost
end

# frozen_string_literal: true

require_relative "scheduler"
require_relative "core/integrations"

module Heddle
  autoload :FiberPool, "#{__dir__}/fiber_pool"

  class << self
    # Runs the block as a task. Returns the block's value when the block and all tasks spawned inside ({Heddle.spawn},
    # pools) have ended. Installs a {Scheduler} on this thread for that time. If the thread already has a scheduler
    # (inside another run, or under another scheduler such as async), the run uses that scheduler and waits only for
    # its own tasks.
    #
    # A fiber of `Fiber.schedule` belongs to the run that installed the scheduler, not to a run inside it, and inherits
    # no deadline: libraries start shared fibers in the task that happens to need them first.
    #
    # An error that leaves the block cancels all tasks, runs their `ensure` blocks, and is raised. So do SystemExit and
    # signals in any task, and an interrupt that arrives while all tasks wait. When another task fails, the others
    # continue. Its error is printed, unless some task waits for it; the print comes after the ready tasks had their
    # turn, so that the spawner can still call {Task#value}. The run raises the error at its end unless {Task#value}
    # raised it before.
    #
    # Cancelled tasks have `grace` seconds to clean up, plus the time of any {Heddle.shield} around them. Then
    # {Cancellation} is raised in them again, three times in all. The run abandons a task that still has not ended, and
    # prints a warning with the task's backtrace.
    #
    # @param grace [Numeric] seconds
    # @yield in a task
    # @return [Object] the block's value
    # @raise [TaskCancelled] when the block's own task was cancelled
    # @raise [BackendUnavailable, ArgumentError] see {Scheduler}
    def run(grace: 5, &block)
      raise ArgumentError, "Heddle.run needs a block to run" unless block
      scheduler = Fiber.scheduler
      # Ruby 3.1 does not remove a scheduler whose `close` raised if the program itself set that scheduler.
      Fiber.set_scheduler(scheduler = nil) if scheduler.is_a?(Loop) && scheduler.closed?
      Integrations.load
      return Run.new.call(grace, false, &block) if scheduler

      Loop.make.installed { Run.new.call(grace, true, &block) }
    end
  end
end

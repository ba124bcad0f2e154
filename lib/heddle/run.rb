# frozen_string_literal: true

require_relative "scheduler"
require_relative "integrations"

module Heddle
  class << self
    # Runs the block as a task and returns its value, once it and all tasks spawned inside ({Heddle.spawn}, pools) have
    # ended. Installs a {Scheduler} on this thread for that time, unless one is set: inside another run, or under a
    # foreign scheduler (async), it works on that one and waits for its own tasks only.
    #
    # A fiber of `Fiber.schedule` belongs to the run that installed the scheduler, not to a run inside it, and inherits
    # no deadline: libraries start fibers that work for all tasks in whichever task asks first.
    #
    # An error that leaves the block cancels the tasks, whose `ensure` blocks run, and is raised; so do SystemExit and
    # signals in any task, and an interrupt that arrives while all wait. The error of another task leaves the others be:
    # unless somebody waits for the task it is printed at once (after the turn of those that are ready, so that whoever
    # spawned the task can ask), and raised at the end unless its value was asked for.
    #
    # Tasks that are cancelled have `grace` seconds for their clean-up (and the time of any {Heddle.shield} that they
    # are in), then {Cancellation} is raised in them again, three times in all. A task that is there even then is given
    # up: a warning says where it is, and the run ends without it.
    #
    # @param grace [Numeric] seconds
    # @yield the work
    # @return [Object] the block's value
    # @raise [TaskCancelled] when the block's own task was cancelled
    # @raise [BackendUnavailable, ArgumentError] see {Scheduler}
    def run(grace: 5, &block)
      raise ArgumentError, "Heddle.run needs a block: the work to run" unless block
      scheduler = Fiber.scheduler
      # Ruby 3.1 keeps a scheduler whose close has raised, where the program itself had set it.
      Fiber.set_scheduler(scheduler = nil) if scheduler.is_a?(Scheduler) && scheduler.closed?
      Integrations.load
      return Run.new.call(grace, false, &block) if scheduler

      Scheduler.new.installed { Run.new.call(grace, true, &block) }
    end
  end
end

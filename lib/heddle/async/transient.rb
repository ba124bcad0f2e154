# frozen_string_literal: true

module Heddle
  module AsyncLoop
    # {Heddle.run} waits for no transient task, and such a task inherits no deadline, even if the task becomes transient
    # after its start. Async's own loop looks at the tree of tasks; a run has a list of its own.
    module Transient
      def transient=(value)
        super
        scheduler = Fiber.scheduler if value && @fiber
        scheduler.__send__(:release_external_task, @fiber) if scheduler.is_a?(AsyncLoop)
      end

      ::Async::Task.prepend(self)
    end
    private_constant :Transient
  end
end

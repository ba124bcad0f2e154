# frozen_string_literal: true

module Heddle
  module SidekiqSupport
    # Notices when a task that a job started kills the thread: the job is then as one that does so itself.
    #
    # @api private
    module SubTasks
      def spawn(**options, &block)
        killed = Thread.current[:heddle_thread_killed]
        return super unless killed && block

        super { SubTasks.watch(killed, &block) }
      end

      # Calls the block in its new task.
      #
      # @param killed [Proc] to call if a kill of the thread leaves the block
      # @return [Object] the block's value
      def self.watch(killed)
        Thread.current[:heddle_thread_killed] = killed
        value = yield
        ended = true
        value
      rescue Exception # rubocop:disable Lint/RescueException -- no kill, which runs only `ensure`
        ended = true
        raise
      ensure
        killed.call unless ended
      end

      Heddle.singleton_class.prepend(self)
    end
  end
end

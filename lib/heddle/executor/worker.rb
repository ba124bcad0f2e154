# frozen_string_literal: true

module Heddle
  class Executor
    # One thread of an {Executor}, with a loop. Its dispatcher, a task, takes work from the executor for as many tasks
    # as may run; each task runs one block.
    #
    # `running` and `completed` are changed in the worker's own thread; other threads only read them.
    #
    # @api private
    class Worker
      # Leaves the dispatcher, so that its run cancels the tasks.
      Killed = Class.new(StandardError)
      private_constant :Killed

      # @return [Integer] blocks that were taken and have not ended
      attr_reader :running

      # @return [Integer] blocks that returned
      attr_reader :completed

      def initialize(executor, limit)
        @executor = executor
        @limit = limit
        @running = @completed = 0
        @changed = EventCount.new
        thread = Thread.new { live }
        thread.name = [executor.name, "heddle executor"].compact.join(" ")
        thread.report_on_exception = false
      end

      def room? = @running < @limit

      def idle? = @running.zero?

      # Lets the dispatcher look for work. Any thread may call this.
      def wake = @changed.advance

      def kill
        @killed = true
        wake
      end

      def took = @running += 1

      def gave_back = @running -= 1

      private

      # A thread inherits the mask of the one that starts it: it can be interrupted, or killed, while it serves. An
      # interrupt before that, or at its end, must not leave the executor with a worker that has no thread.
      def live
        Heddle.background_thread { Heddle.run(grace: @executor.grace) { dispatch } }
      rescue Killed
        nil
      rescue Exception => error # rubocop:disable Lint/RescueException -- nobody else would tell of it
        @executor.log(Concurrent::ExecutorService::ERROR, error)
      ensure
        @executor.worker_ended(self)
      end

      def dispatch
        idle = false
        loop do
          seen = @changed.count # before the look for work: whoever posts after the look wakes the dispatcher
          raise Killed if @killed

          start_tasks
          break if idle? && @executor.dismiss?(self, idle)

          @changed.wait(seen, (@executor.idletime if idle?))
          idle = seen == @changed.count # nobody woke it: the time is over
        end
      end

      def start_tasks
        while room? && (work = @executor.take(self))
          started = false
          begin
            Heddle.spawn(name: @executor.name) do
              started = true
              perform(*work)
            end
          rescue LimitReached
            # There is no memory for another fiber: the next task takes the fiber of one that ends.
            return if @running > 1

            started = true
            perform(*work)
          ensure
            @executor.give_back(self, work) unless started
          end
        end
      end

      def perform(block, arguments)
        block.call(*arguments)
        @completed += 1
      rescue Cancellation
        raise
      rescue => error
        @executor.log(Concurrent::ExecutorService::DEBUG, error)
      rescue Exception => error # rubocop:disable Lint/RescueException -- a block must not end the others
        @executor.log(Concurrent::ExecutorService::ERROR, error)
      ensure
        @running -= 1
        wake if @running.zero? || @executor.queue?
      end
    end
    private_constant :Worker
  end
end

# frozen_string_literal: true

require_relative "../core/inheritance"

module Heddle
  module SidekiqSupport
    # Knows which job a task belongs to, however the job started it: a task that kills the thread is as a job that does
    # so itself, and one that computes when the process stops is interrupted.
    #
    # @api private
    module SubTasks
      Task.attr_accessor :heddle_job

      # A job that runs or has run.
      #
      # @!attribute [r] processor
      #   @return [FiberProcessor]
      # @!attribute [r] fate
      #   @return [Array] see {FiberProcessor#decide}
      Job = Struct.new(:processor, :fate)

      # The interruption of a task that computes.
      Interrupted = Class.new(::Sidekiq::Shutdown)
      private_constant :Job, :Interrupted

      class << self
        # From now on, the running task is that of a job. Tests of programs process jobs outside of any task.
        #
        # @return [void]
        def begin(processor, fate)
          task = Task.current
          task.heddle_job = Job.new(processor, fate) if task
        end

        # @return [Proc] the block of a run, which belongs to the job that calls this
        def continued(block)
          return block unless (job = Task.current&.heddle_job)

          proc do
            Task.current.heddle_job = job
            block.call
          end
        end

        # @return [Proc] the block of a task that starts, which belongs to the job that calls this
        def inherited(block)
          return block unless (job = Task.current&.heddle_job)

          proc { |*arguments| watch(job) { block.call(*arguments) } }
        end

        # @return [Proc] the block: a thread of {Heddle.offload} runs no task
        def offloaded(block) = block

        # Has a task that computes, and so keeps all jobs from ending, end as one that is cancelled; once.
        #
        # @param task [Task]
        # @param thread [Thread]
        # @return [void]
        def interrupt(task, thread)
          return unless (job = task.heddle_job)

          task.heddle_job = nil
          job.processor.interrupt_sub_task(job.fate) { thread.raise(Interrupted, "the process is shutting down") }
        end

        private

        def watch(job)
          Task.current.heddle_job = job
          value = yield
          ended = true
          value
        rescue Interrupted
          ended = true
          end_after_interruption(job)
        rescue Exception # rubocop:disable Lint/RescueException -- no kill, which runs only `ensure`
          ended = true
          raise
        ensure
          job.processor.thread_killed(job.fate) unless ended
        end

        # The job itself is interrupted first: if the end of its task came before, the interruption would arrive as the
        # job cleans up.
        def end_after_interruption(job)
          sleep 0.001 while job.processor.interruption_on_its_way?(job.fate)
          Task.current.cancel
          sleep
        end
      end

      Inheritance.add(self)
    end
  end
end

# frozen_string_literal: true

module Heddle
  module SidekiqSupport
    # What signals do in a Sidekiq process with fibers, beyond what Sidekiq has them do: a second TERM or INT, while the
    # process stops, ends the time for which it waits for jobs; TTIN and INFO log the stack of each job.
    #
    # @api private
    module Signals
      ENDING = %w[TERM INT].freeze
      DUMPING = %w[TTIN INFO].freeze
      private_constant :ENDING, :DUMPING

      @hurried = false
      @dispatchers = []

      class << self
        # Has further signals to end hurry the end, in a process that `sidekiq` started. In another one the signals
        # are the program's own.
        #
        # @return [void]
        def hurry
          return unless command?

          ENDING.each { |signal| trap(signal) { @hurried = true } }
        end

        # @return [Boolean] whether another signal to end has come
        def hurried? = @hurried

        # Adds the dispatcher's jobs to what TTIN and INFO log.
        #
        # @return [void]
        def describe(dispatcher)
          @dispatchers |= [dispatcher]
          return if @describing || !command?

          @describing = true
          handlers = ::Sidekiq::CLI::SIGNAL_HANDLERS
          DUMPING.each do |signal|
            handler = handlers.fetch(signal, nil)
            handlers[signal] = ->(cli) { handler.call(cli) && log(cli.logger) } if handler
          end
        end

        # @return [void]
        def unregister(dispatcher)
          @dispatchers -= [dispatcher]
        end

        # Has the process exit although jobs still run, as behind a shield that lasts. They are back in their queue.
        # Ruby would wait for their thread.
        #
        # @return [void]
        def abandon_jobs
          return unless command?

          forks = Heddle.forks
          at_exit { exit_at_last($!.is_a?(SystemExit) ? $!.status : 0) if forks == Heddle.forks }
        end

        private

        # Once Ruby has called all of the program's at_exit blocks, it ends the threads.
        def exit_at_last(status)
          waits = Thread::Queue.new
          Thread.new do
            waits << true
            sleep
          ensure
            exit!(status)
          end
          waits.pop
        end

        # Sidekiq's command is no Singleton in its own tests.
        def command?
          defined?(::Sidekiq::CLI) && ::Sidekiq::CLI.respond_to?(:instance) && ::Sidekiq::CLI.instance.launcher
        end

        def log(logger)
          @dispatchers.flat_map(&:busy).each do |processor|
            logger.warn("#{processor.description}\n#{processor.task&.backtrace&.join("\n")}")
          end
        end
      end
    end
  end
end

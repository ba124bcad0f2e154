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
          at_exit { exit!($!.is_a?(SystemExit) ? $!.status : 0) if @abandoning == Heddle.forks }
          handlers = ::Sidekiq::CLI::SIGNAL_HANDLERS
          DUMPING.each do |signal|
            handler = handlers.fetch(signal, nil)
            handlers[signal] = ->(cli) { handler.call(cli) && log(cli.logger) } if handler
          end
        end

        # @return [void]
        def forget(dispatcher)
          @dispatchers -= [dispatcher]
        end

        # Has the process exit although jobs still run, as behind a shield that lasts. They are back in their queue.
        # Ruby would wait for their thread.
        #
        # @return [void]
        def abandon_jobs
          @abandoning = Heddle.forks if command?
        end

        private

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

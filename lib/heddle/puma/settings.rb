# frozen_string_literal: true

module Heddle
  module PumaSupport
    # What `heddle` sets in Puma's configuration.
    module Settings
      # @return [Integer] the most requests at once in a process
      FIBERS = 200
      # @return [Numeric] seconds without a switch of fibers after which a request is reported
      STALL = 1

      # Methods of Puma::DSL, for `config/puma.rb`.
      module OfDSL
        # Changes what `plugin :heddle` does: each request runs as a task, on Puma's threads, which are as many as
        # `threads` says, and one if it says nothing. Write it below that line.
        #
        # @param fibers [Integer] the most requests at once, on all threads of a process together
        # @param stall [Numeric, nil] seconds: a request that computes for longer than this, so that no other request
        #   of its thread can run, is logged with its stack; nil for no such report
        # @return [void]
        # @raise [ArgumentError] for a number that is not positive
        def heddle(fibers: FIBERS, stall: STALL)
          Settings.check("fibers", fibers, Integer)
          Settings.check("stall", stall, Numeric) unless stall.nil?

          @options[:heddle] = {fibers: fibers, stall: stall}
        end
      end

      class << self
        # Has Puma take the fibers for its threads: in its statistics, and where it asks how busy a worker is.
        #
        # @api private
        # @param launcher [Puma::Launcher]
        # @return [void]
        def apply(launcher)
          options = launcher.options
          fibers, options[:heddle_stall] = (options[:heddle] || DEFAULTS).values_at(:fibers, :stall)
          threads = options[:heddle_threads] = threads_of(options)
          options[:min_threads] = 0
          options[:max_threads] = fibers
          # Until Puma 7 a task serves several requests of a connection. This clears fiber-locals in between.
          options[:clean_thread_locals] = true
          launcher.log_writer.log("* Heddle #{VERSION}: up to #{fibers} requests at once, as tasks on #{threads} " \
            "#{(threads == 1) ? "thread" : "threads"} (Puma's \"threads\" are requests)")
        end

        # @api private
        def check(name, value, type)
          return if value.is_a?(type) && value.positive?

          wanted = (type == Integer) ? "an Integer of 1 or more" : "a number of seconds above 0"
          raise ArgumentError, "heddle: #{name} must be #{wanted}, not #{value.inspect}"
        end

        private

        # Puma's own default is meant for requests that each have a thread.
        def threads_of(options)
          chosen = options.user_options[:max_threads] || options.file_options[:max_threads]
          chosen ||= options.default_options[:max_threads] if options.default_options[:max_threads] != PUMAS_DEFAULT
          chosen || 1
        end
      end

      DEFAULTS = {fibers: FIBERS, stall: STALL}.freeze
      PUMAS_DEFAULT = ::Puma::Configuration::DEFAULTS[:max_threads]
      private_constant :DEFAULTS, :PUMAS_DEFAULT
    end

    # ActiveSupport keeps attributes of the current request by thread, unless it is told to keep them by fiber.
    #
    # @api private
    # @raise [ArgumentError] for the former
    def self.check_isolation
      return unless Object.const_defined?("ActiveSupport::IsolatedExecutionState")
      return if ::ActiveSupport::IsolatedExecutionState.isolation_level == :fiber

      raise ArgumentError, "heddle: requests on fibers would share ActiveSupport's current attributes and " \
        "ActiveRecord's connections. Write config.active_support.isolation_level = :fiber in config/application.rb " \
        "(without Rails: ActiveSupport::IsolatedExecutionState.isolation_level = :fiber)"
    end
  end
end

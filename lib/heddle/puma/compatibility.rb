# frozen_string_literal: true

module Heddle
  module PumaSupport
    # {TaskPool} stands on methods and variables of Puma's that are not its API. This compares the installed Puma with
    # what they were in the versions that the pool was tested with.
    #
    # @api private
    module Compatibility
      VERSIONS = Gem::Requirement.new(">= 6.4", "< 9").freeze
      REPLACED = %i[<< shutdown spawn_thread with_force_shutdown].freeze
      CALLED = %i[
        with_mutex trigger_before_thread_start_hooks trigger_before_thread_exit_hooks trigger_out_of_band_hook
      ].freeze
      # Of one version or another; the pool replaces them or inherits what they do.
      OTHERS = %i[
        auto_reap! auto_trim! backlog backlog_max busy_threads can_spawn_processor? max max= min min=
        out_of_band_running pool_capacity reap reset_max spawn_thread_if_needed spawned stats trim trim_requested
        wait_for_less_busy_worker wait_until_not_full wait_while_out_of_band_running waiting
      ].freeze
      STATE = %i[
        @auto_trim @force_shutdown @max @min @mutex @name @not_full @out_of_band_pending @reaper @shutdown
        @shutdown_grace_time @shutdown_mutex @spawned @todo @waiting
      ].freeze
      private_constant :VERSIONS, :REPLACED, :CALLED, :OTHERS, :STATE

      class << self
        # @param pool [Class]
        # @param version [String]
        # @return [void]
        # @raise [LoadError] for a Puma that the pool cannot work with; warns of one that it may not know
        def check(pool = ::Puma::ThreadPool, version = ::Puma::Const::VERSION)
          methods = pool.instance_methods + pool.private_instance_methods
          missing = REPLACED + CALLED - methods
          refuse(version, "its ThreadPool has no #{missing.join(", ")}") if missing.any?

          unknown = pool.public_instance_methods(false) - REPLACED - CALLED - OTHERS
          return if unknown.empty? && VERSIONS.satisfied_by?(Gem::Version.new(version))

          warn "heddle: Puma #{version} is not one of the versions that this Heddle was tested with (#{VERSIONS})" \
            "#{": its ThreadPool also has #{unknown.join(", ")}" if unknown.any?}"
        end

        # @param pool [TaskPool] that has been initialized
        # @param version [String]
        # @return [void]
        # @raise [LoadError] if Puma keeps its state elsewhere
        def check_state(pool, version = ::Puma::Const::VERSION)
          missing = STATE.reject { |name| pool.instance_variable_defined?(name) }
          refuse(version, "its ThreadPool has no #{missing.join(", ")}") if missing.any?
        end

        private

        def refuse(version, why)
          raise LoadError, "heddle/puma cannot run on Puma #{version}: #{why}. Update Heddle, or remove " \
            "plugin :heddle from config/puma.rb"
        end
      end
    end
    private_constant :Compatibility
  end
end

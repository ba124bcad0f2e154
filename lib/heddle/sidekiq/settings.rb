# frozen_string_literal: true

require "sidekiq/capsule"
require "sidekiq/config"
require_relative "job_deadline"
require_relative "send_deadline"
require_relative "shared_connections"

module Heddle
  module SidekiqSupport
    # What +heddle+ sets in Sidekiq's configuration.
    module Settings
      # @return [Integer] the most connections to Redis of a capsule with fibers
      CONNECTIONS = 20

      # @return [Numeric] seconds without a switch of fibers after which a job is reported
      STALL = 1

      # @api private
      def self.add_deadlines(config)
        config.client_middleware { |chain| chain.add(SendDeadline) }
        config.server_middleware { |chain| chain.extend(JobDeadline) }
      end

      # Methods of Sidekiq::Config.
      module OfConfig
        # Runs the jobs of the default capsule on fibers; see {OfCapsule#heddle}.
        #
        # @param fibers [Integer] the most jobs at once
        # @param stall [Numeric, nil] seconds
        # @param connections [Integer] the most connections to Redis
        # @return [void]
        def heddle(fibers:, stall: STALL, connections: CONNECTIONS)
          default_capsule.heddle(fibers: fibers, stall: stall, connections: connections)
        end

        # @api private
        # @return [ConnectionPool] of +size+ connections, unless the configuration of Redis says another size
        def new_shared_redis_pool(size, name)
          ::Sidekiq::RedisConnection.create({size: size, logger: logger, pool_name: name}.merge(@redis_config))
        end
      end

      # Has tasks that a job starts use the connections of the job's capsule, as the job does.
      #
      # @api private
      module OfSubTasks
        def redis_pool
          return super if Thread.current[:sidekiq_redis_pool] || Thread.current[:sidekiq_capsule]

          Thread.current.thread_variable_get(:heddle_capsule)&.redis_pool || super
        end
      end

      # Methods of Sidekiq::Capsule.
      module OfCapsule
        # Runs the capsule's jobs on fibers of one thread instead of threads.
        #
        # @param fibers [Integer] the most jobs at once; also becomes the capsule's +concurrency+
        # @param stall [Numeric, nil] seconds: a job that computes for longer than this, so that no other job can run,
        #   is logged with its class, its id and its stack; nil for no such report
        # @param connections [Integer] the most connections to Redis that the jobs, and Sidekiq on their behalf, share;
        #   each is made when it is first needed. A +size+ in <tt>config.redis</tt> goes before.
        # @return [void]
        # @raise [ArgumentError] for a number that is not positive, and for less than two connections
        def heddle(fibers:, stall: STALL, connections: CONNECTIONS)
          Settings.check("fibers", fibers, Integer, 1)
          Settings.check("connections", connections, Integer, 2)
          Settings.check("stall", stall, Numeric, 0) unless stall.nil?

          require_relative "engine"
          self.concurrency = fibers
          @heddle_stall = stall
          @heddle_connections = connections
          Settings.add_deadlines(config)
        end

        # @api private
        # @return [Boolean] whether the jobs run on fibers
        def heddle? = !@heddle_connections.nil?

        # @api private
        # @return [Numeric, nil] seconds
        attr_reader :heddle_stall

        # @api private
        # @return [Dispatcher] of the capsule's processors
        attr_accessor :heddle_dispatcher

        # @api private
        def fetcher
          return super unless heddle? && BatchFetch.fits?(config)

          @fetcher ||= BatchFetch.new(self)
        end

        # @api private
        # @return [ConnectionPool] in a child of fork another one, since the parent's fibers use the connections
        def local_redis_pool
          return super unless heddle?

          @redis = nil unless @heddle_forks == Heddle.forks
          @heddle_forks = Heddle.forks
          @redis ||= shared_redis_pool
        end

        private

        def shared_redis_pool
          pool = config.new_shared_redis_pool([@heddle_connections, concurrency].min, name)
          pool.extend(SharedConnections).share_among(concurrency)
          Settings.check_size(pool, concurrency)
          pool
        end
      end

      # @api private
      def self.check_size(pool, fibers)
        return if pool.connections > 1 || fibers == 1

        raise ArgumentError, "heddle: config.redis has a size of 1 connection, which would be waiting for jobs while " \
          "#{fibers} fibers need it: make it 2 or more, or leave it out"
      end

      # @api private
      def self.check(name, value, type, least)
        return if value.is_a?(type) && value >= least && !(type == Numeric && value.zero?)

        wanted = (type == Integer) ? "an Integer of #{least} or more" : "a number of seconds above 0"
        raise ArgumentError, "heddle: #{name} must be #{wanted}, not #{value.inspect}"
      end
    end
  end
end

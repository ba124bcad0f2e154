# frozen_string_literal: true

require "sidekiq/fetch"

module Heddle
  module SidekiqSupport
    # Fetches several jobs in one exchange with Redis where several processors are idle: as many as can start at once,
    # in the order in which Sidekiq's own fetch would get them one by one.
    #
    # @api private
    class BatchFetch < ::Sidekiq::BasicFetch
      # The most jobs in an exchange. Jobs of one batch start one after another; other processes do not get them
      # meanwhile.
      LIMIT = 16
      # Seconds for an exchange with Redis, which a cancel does not interrupt.
      PATIENCE = 10
      UNKNOWN = /unknown command|no permissions? to run the 'blmpop'/i
      private_constant :LIMIT, :PATIENCE, :UNKNOWN

      # @return [Boolean] whether Sidekiq's own fetch is what the program uses, without a gem's changes
      def self.fits?(config)
        config[:fetch_class].nil? && SINGLE.owner == ::Sidekiq::BasicFetch &&
          ::Sidekiq::BasicFetch.instance_method(:retrieve_work) == SINGLE
      end

      SINGLE = ::Sidekiq::BasicFetch.instance_method(:retrieve_work)
      private_constant :SINGLE

      # @return [UnitOfWork, nil] a job; the dispatcher gets the others of the batch
      def retrieve_work
        return super if @single

        config.heddle_dispatcher.reserve(LIMIT) { |most| retrieve(most) }
      rescue RedisClient::CommandError => error
        raise unless UNKNOWN.match?(error.message)

        @single = true # a server that is not Redis, or an older one, or that permits what Sidekiq's own fetch needs
        super
      end

      private

      # If the task is cancelled meanwhile, the dispatcher gets all.
      #
      # @return [UnitOfWork, nil] the last one, since the others start first
      def retrieve(most)
        queues = queues_cmd
        return sleep(TIMEOUT) && nil if queues.empty? # a gem has paused all of them

        units = []
        redis { |connection| Heddle.shield(PATIENCE) { ask(connection, queues, most, units) } }
        units.pop
      ensure
        config.heddle_dispatcher.keep(units) if units
      end

      # In a shield, since Redis may have answered already. A connection that is given up is closed: Redis would go on
      # waiting for it, and give it the next job.
      def ask(connection, queues, most, units)
        queue, jobs = connection.blocking_call(TIMEOUT, "blmpop", TIMEOUT, queues.size, *queues, "right", "count", most)
        answered = true
        jobs&.each { |job| units << UnitOfWork.new(queue, job, config) }
      ensure
        connection.close unless answered
      end
    end
  end
end

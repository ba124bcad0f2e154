# frozen_string_literal: true

require_relative "../heddle"
require_relative "core/required_gem"
Heddle::RequiredGem.load("redis-client", "Heddle::Limit", "redis-client, 0.12 or later")
require_relative "core/dropped_fiber"
require_relative "limit/errors"
require_relative "limit/permit"
require_relative "limit/coordinator"

module Heddle
  # A limit that all processes on all machines share, kept in Redis (5 or later): so many blocks at once, so many starts
  # in any one second, or both. Permits are given in the order in which callers asked, by Redis's clock.
  #
  # A permit is a lease: the process renews it while the block runs, and it expires when the process dies. All limits on
  # one Redis server share one thread and two connections in each process, however many tasks and threads wait.
  #
  # Waiting for a permit is a wait like any other: a {Heddle.deadline} or a cancel ends it, and gives the permit back.
  # If Redis cannot be reached, callers that wait get {Unavailable}. Blocks that run keep their permits, which are
  # entered again when Redis is back, also in a Redis that lost its data.
  #
  # All processes must give one limit the same numbers: those of the latest call hold.
  #
  # @example
  #   require "heddle/limit"
  #   API = Heddle::Limit.new("api.example", concurrent: 20, per_second: 50)
  #   API.acquire { Net::HTTP.get(uri) }
  class Limit
    DAY = 86_400
    private_constant :DAY

    class << self
      # The Redis server of limits that name none.
      #
      # @return [RedisClient::Config, Hash, String]
      def redis = @redis || ENV["REDIS_URL"] || "redis://127.0.0.1:6379"

      # A RedisClient::Config, the Hash of its options, an URL, or nil for that of REDIS_URL.
      attr_writer :redis
    end

    # @return [String]
    attr_reader :name

    # @return [Integer, nil] the most blocks that run at once
    attr_reader :concurrent

    # @return [Integer, nil] the most blocks that start in any one second
    attr_reader :per_second

    # @return [Numeric] seconds
    attr_reader :lease

    # @param name [String] the same in all processes that share the limit
    # @param concurrent [Integer, nil] the most blocks that run at once
    # @param per_second [Integer, nil] the most blocks that start in any one second
    # @param lease [Numeric] seconds after which a permit is free again if its process died: 0.1 to a day
    # @param redis [RedisClient::Config, Hash, String, nil] what `RedisClient.config` returned, the Hash of its options,
    #   or an URL; nil for {Limit.redis}
    # @raise [TypeError, ArgumentError] for a value that it cannot use
    def initialize(name, concurrent: nil, per_second: nil, lease: 15, redis: nil)
      raise TypeError, "a limit's name must be a String, not #{name.inspect}" unless name.is_a?(String)

      @name = name
      @concurrent = count("concurrent", concurrent)
      @per_second = count("per_second", per_second)
      raise ArgumentError, "the limit #{name.inspect} needs concurrent: or per_second:" unless concurrent || per_second
      raise TypeError, "lease: must be a number of seconds, not #{lease.inspect}" unless lease.is_a?(Numeric)
      raise ArgumentError, "lease: must be 0.1 to #{DAY} seconds, not #{lease}" unless lease.between?(0.1, DAY)

      @lease, @redis = lease, redis
    end

    # Waits for a permit, and calls the block in it.
    #
    # @param timeout [Numeric, nil] seconds to wait for a permit; the block is not bound by it
    # @return [Object] the block's value
    # @raise [Exhausted] when the timeout ended first
    # @raise [Unavailable] when Redis could not be reached
    # @raise [DeadlineExceeded] of a {Heddle.deadline} around the call
    def acquire(timeout: nil)
      raise ArgumentError, "Heddle::Limit#acquire needs a block to call in its place" unless block_given?

      permit = Permit.new(self)
      DroppedFiber.hold(self, permit) do
        begin
          Coordinator.of(@redis || Limit.redis).enter(permit)
          permit.wait(timeout)
          yield
        ensure
          permit.leave
        end
      ensure
        permit.leave # again, since Thread#raise may have interrupted before the first call or within it
      end
    end

    # @api private for {DroppedFiber}
    def take_back(permit) = permit.leave

    # @return [String]
    def inspect
      numbers = {concurrent: @concurrent, per_second: @per_second}.compact.map { |pair| pair.join(": ") }.join(", ")
      "#<#{self.class} #{@name.inspect} #{numbers}>"
    end

    private

    def count(what, value)
      raise TypeError, "#{what}: must be an Integer, not #{value.inspect}" unless value.nil? || value.is_a?(Integer)
      raise ArgumentError, "#{what}: must be at least 1, not #{value}" if value && value < 1

      value
    end
  end
end

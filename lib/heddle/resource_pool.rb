# frozen_string_literal: true

require_relative "scheduler"
require_relative "core/dropped_fiber"

module Heddle
  # A bounded number of resources (connections of other libraries, say), each lent to one task or thread at a time.
  # Resources are made on demand; the one used last is lent first. A child of fork begins with none.
  #
  # @example
  #   require "heddle"
  #   REDIS = Heddle::ResourcePool.new(size: 10, close: :close.to_proc) { RedisClient.new }
  #   REDIS.with { |redis| redis.call("GET", "key") }
  class ResourcePool
    # @param size [Integer] the most resources
    # @param timeout [Numeric, nil] seconds to wait for a free one; nil: for ever
    # @param idle [Numeric, nil] seconds after which an unused one is closed, at the next {#with}; nil: never
    # @param min [Integer] how many stay although they are unused
    # @param max_lifetime [Numeric, nil] seconds after which one is closed once it is unused; up to a tenth earlier, so
    #   that not all end at once; nil: never
    # @param check [#call, nil] called with a resource that was unused for a while: false if it is not to be used any
    #   more
    # @param reset [#call, nil] called with a resource when it is returned: false if it is not to be used any more
    # @param close [#call, nil] called with a resource that will not be used any more
    # @param after_fork [#call, nil] called in a child of fork with each resource that was the parent's
    # @yieldreturn [Object] a new resource; the block may wait
    # @raise [TypeError, ArgumentError] for a value that it cannot use
    def initialize(size: 5, timeout: 5, idle: 300, min: 0, max_lifetime: nil, check: nil, reset: nil, close: nil,
      after_fork: nil, &make)
      raise ArgumentError, "#{self.class}.new needs a block that makes a resource" unless make

      {size: [size, 1..], min: [min, 0..size]}.each do |name, (count, range)|
        raise TypeError, "#{name}: must be an Integer, not #{count.inspect}" unless count.is_a?(Integer)
        raise ArgumentError, "#{name}: must be in #{range}, not #{count}" unless range.cover?(count)
      end
      @make, @check, @reset, @close, @after_fork = make, check, reset, close, after_fork
      set_up(size, timeout, idle, min, max_lifetime)
    end

    # @return [Hash{Symbol => Integer}] how many resources there are, are idle, and are waited for
    def stats = %i[open idle waiting].zip(counts).to_h

    # @return [String]
    def inspect
      open, idle, waiting = counts
      "#<#{self.class} #{open} of #{size}, #{idle} free, #{waiting} waiting#{" closed" if closed?}>"
    end

    private

    # ---- called by the pool, of which the C code knows no more

    def make = @make.call

    # @param handed_over [Boolean] whether it was in use a moment ago
    def check(resource, handed_over) = handed_over || @check.nil? || @check.call(resource)

    def reset(resource) = @reset.nil? || @reset.call(resource)

    def dispose(resource) = @close&.call(resource)

    def detach(resource) = @after_fork&.call(resource)

    def exhausted(closed)
      raise PoolClosed, "this pool is closed" if closed

      raise PoolTimeout, "none of #{size} became free in time: make the pool larger (size:), or hold them for less time"
    end
  end
end

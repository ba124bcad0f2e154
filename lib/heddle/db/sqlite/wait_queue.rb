# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # The queue of this process for the lock of one database: a {Waiter} for each connection that waits, the
      # longest waiter first. Only the first one asks SQLite again and again; the others sleep. So the lock goes to the
      # waiters in turn, and not to the one that asks at the right moment. Other processes are not in the queue: between
      # processes SQLite has no order.
      #
      # Nothing here waits, and the GVL guards it: each change is one call of a method in C without a block, during
      # which no other thread runs. (Two threads inside of Array#delete_if would lose others from the queue.) One Hash
      # holds both the waiter and the time of its start, so that no exception can arrive between the two.
      #
      # @api private
      class WaitQueue
        LOCK = Thread::Mutex.new
        FEW = 32
        private_constant :LOCK, :FEW

        @queues = ObjectSpace::WeakMap.new # by numbers, which it compares as the same objects
        @forks = Heddle.forks
        @most = FEW

        class << self
          # @param path [String] of the database, "" for one in memory
          # @return [WaitQueue] the same for all connections to one file, for as long as there is one
          def of(path)
            return new if path.empty?

            stat = File.stat(path)
            file = [stat.dev, stat.ino].hash
            LOCK.synchronize do
              # those who waited are in the parent
              @queues, @forks = ObjectSpace::WeakMap.new, Heddle.forks if @forks != Heddle.forks
              forget_ended if @queues.size > @most
              @queues[file] ||= new
            end
          end

          private

          # Ruby 3.3 and later keep the numbers.
          def forget_ended
            kept = ObjectSpace::WeakMap.new
            @queues.each { |file, queue| kept[file] = queue }
            @queues = kept
            @most = [kept.size * 2, FEW].max
          end
        end

        def initialize
          @waiting = {}.compare_by_identity
          @writer = nil
        end

        # @return [String, nil] the connection of this process that is in a writing transaction
        attr_accessor :writer

        # @return [Hash{Waiter => Float}] those who wait, and since when
        attr_reader :waiting

        # @return [Boolean]
        def first?(waiter) = first.equal?(waiter)

        # @return [Float] since when it waits
        def enter(waiter) = @waiting[waiter] ||= Clock.now

        # @return [Float, nil] since when it has waited; nil if it has not
        def leave(waiter) = @waiting.delete(waiter)

        # The lock may be free.
        def wake = first&.wake

        private

        # Not by Hash#first: while that runs, no other thread may enter.
        def first = @waiting.keys.first
      end
      private_constant :WaitQueue
    end
  end
end

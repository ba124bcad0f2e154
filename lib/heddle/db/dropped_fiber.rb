# frozen_string_literal: true

module Heddle
  module DB
    # Gives a pool back what a fiber held that nobody continues any more. An Enumerator runs in a fiber of its own for
    # #next; once the reader has dropped it, the GC collects the fiber, and runs no ensure of it.
    #
    # @api private
    class DroppedFiber
      # @param pool [Pool]
      # @param place [Pool::Place]
      # @return [Object] a witness: keep it in a local variable of the fiber, and end its finalizer when the place is
      #   given back
      def self.witness(pool, place)
        Object.new.tap { |witness| ObjectSpace.define_finalizer(witness, new(pool, place)) }
      end

      def initialize(pool, place)
        @pool = pool
        @place = place
      end

      # By the GC, in any thread and in the middle of anything: of the pool's lock, too. At the end of the process there
      # are no more threads.
      def call(_id)
        pool, place = @pool, @place
        Thread.new { Heddle.own_thread { pool.take_back(place) } }
      rescue ThreadError
        nil
      end
    end
    private_constant :DroppedFiber
  end
end

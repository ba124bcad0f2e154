# frozen_string_literal: true

module Heddle
  # Gives a pool or a limit back what a fiber held that nobody continues any more. An Enumerator runs in a fiber of its
  # own for #next; once the reader has dropped it, the GC collects the fiber, and runs no ensure of it.
  #
  # @api private
  class DroppedFiber
    # @param owner [#take_back] a pool, say; it must not refer to the fiber
    # @param place [Object] for `take_back`
    # @return [Object] a witness: keep it in a local variable of the fiber, and end its finalizer when the place is
    #   given back
    def self.witness(owner, place)
      Object.new.tap { |witness| ObjectSpace.define_finalizer(witness, new(owner, place)) }
    end

    def initialize(owner, place)
      @owner = owner
      @place = place
    end

    # By the GC, in any thread and in the middle of anything: of the owner's lock, too. At the end of the process there
    # are no more threads.
    def call(_id)
      owner, place = @owner, @place
      Thread.new { Heddle.own_thread { owner.take_back(place) } }
    rescue ThreadError
      nil
    end
  end
  private_constant :DroppedFiber
end

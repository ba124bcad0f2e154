# frozen_string_literal: true

module Heddle
  # Gives pools and limits back what a fiber held that nobody continues any more. An Enumerator runs in a fiber of its
  # own for #next; once the reader has dropped it, the GC collects the fiber, and runs no ensure of it.
  #
  # The fiber has a witness, which is collected with it. The witness stands in a local variable, too, since programs
  # clear Thread#[].
  #
  # @api private
  class DroppedFiber
    # @return [Hash] the owners of what its fiber holds, by place
    attr_reader :held

    # Calls the block. If its fiber is dropped meanwhile, the owner takes the place back.
    #
    # @param owner [#take_back] a pool, say; neither it nor the place may refer to the fiber
    # @param place [Object] for `take_back`
    # @return [Object] the block's value
    def self.hold(owner, place)
      witness = Thread.current[:heddle_dropped_fiber] ||= new
      witness.held[place] = owner
      yield
    ensure
      witness&.held&.delete(place)
    end

    def initialize
      @held = {}.compare_by_identity
      ObjectSpace.define_finalizer(self, Collected.new(@held))
    end

    # The finalizer of a witness, to which it must not refer.
    class Collected
      def initialize(held)
        @held = held
      end

      # By the GC, in any thread and in the middle of anything: of an owner's lock, too. At the end of the process there
      # are no more threads.
      def call(_id)
        held = @held
        return if held.empty?

        Thread.new { Heddle.background_thread { held.each { |place, owner| owner.take_back(place) } } }
      rescue ThreadError
        nil
      end
    end
    private_constant :Collected
  end
  private_constant :DroppedFiber
end

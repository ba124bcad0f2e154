# frozen_string_literal: true

require "heddle" unless defined?(Heddle::FiberPool)

module Heddle
  # `require "heddle/neverblock"` beside EventMachine.
  class ReactorLoaded < LoadError
    include Error
  end

  # The names by which programs for NeverBlock (Mohammad A. Ali, 2008) call it, so that its clients run as they are written:
  # <tt>NB::FiberPool</tt> and <tt>EM.run</tt>. No socket class is replaced for that: Ruby's own let other fibers run
  # when they wait.
  #
  # @example
  #   require "heddle/neverblock"
  #   require "net/http"
  #
  #   EM.run do
  #     pool = NB::FiberPool.new(20)
  #     20.times { pool.spawn { Net::HTTP.start("localhost", 8080) { |http| http.get("/") } } }
  #   end
  module NeverBlock
    # @raise [ReactorLoaded] when EventMachine is loaded
    # @return [void]
    def self.refuse_eventmachine
      return unless defined?(::EventMachine)

      raise ReactorLoaded, "heddle/neverblock stands in for EventMachine's EM.run, and EventMachine is loaded: its reactor would " \
        "hold the thread, and no fiber of Heddle could run. Use one of the two: drop `require \"eventmachine\"`, or run the " \
        "reactor in a process of its own"
    end

    refuse_eventmachine

    # A {Heddle::FiberPool} whose `spawn` never waits: what finds no free fiber is queued, however much that is.
    class FiberPool < Heddle::FiberPool
      UNBOUNDED = 1 << 62
      private_constant :UNBOUNDED

      # @param count [Integer] how many blocks run at once, at most
      def initialize(count = 50)
        super(count, queue: UNBOUNDED)
      end
    end

    # What EventMachine was to NeverBlock's clients.
    module Reactor
      class << self
        # {Heddle.run}: returns once the block and all that was spawned inside have ended. There is no need to stop it.
        #
        # @return [Object] the block's value
        # @raise [ReactorLoaded] when EventMachine was loaded meanwhile
        def run(&block)
          NeverBlock.refuse_eventmachine
          Heddle.run(&block)
        end
      end
    end
  end
end

# NeverBlock's own name for itself.
NB = Heddle::NeverBlock unless defined?(NB)
# In place of EventMachine, see {Heddle::NeverBlock::Reactor}.
EM = Heddle::NeverBlock::Reactor unless defined?(EM)

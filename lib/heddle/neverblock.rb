# frozen_string_literal: true

require_relative "../heddle"

module Heddle
  # `require "heddle/neverblock"` was called while EventMachine was loaded.
  class ReactorLoaded < LoadError
    include Error
  end

  # Defines the names that clients of NeverBlock (Mohammad A. Ali, 2008) use, <tt>NB::FiberPool</tt> and
  # <tt>EM.run</tt>, so that these clients run unmodified. Replaces no socket class: Ruby's own sockets let other fibers
  # run while they wait.
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

      raise ReactorLoaded, "heddle/neverblock replaces EventMachine's EM.run, but EventMachine is loaded: its " \
        "reactor would block the thread, and no fiber of Heddle could run. Use only one of them: drop " \
        "`require \"eventmachine\"`, or run the reactor in a process of its own"
    end

    refuse_eventmachine

    # A {Heddle::FiberPool} whose `spawn` never waits: its queue has no bound.
    class FiberPool < Heddle::FiberPool
      UNBOUNDED = 1 << 62
      private_constant :UNBOUNDED

      # @param count [Integer] the most blocks that run at once
      def initialize(count = 50)
        super(count, queue: UNBOUNDED)
      end
    end

    # Replaces EventMachine for NeverBlock's clients.
    module Reactor
      class << self
        # Calls {Heddle.run}, which returns when the block and all tasks spawned inside have ended. Needs no `stop`.
        #
        # @return [Object] the block's value
        # @raise [ReactorLoaded] when EventMachine was loaded since the `require`
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
# Replaces EventMachine, see {Heddle::NeverBlock::Reactor}.
EM = Heddle::NeverBlock::Reactor unless defined?(EM)

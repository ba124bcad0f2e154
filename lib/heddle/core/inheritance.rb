# frozen_string_literal: true

module Heddle
  # What the blocks of {Heddle.run}, tasks and {Heddle.offload} inherit from the code that starts them, for libraries
  # that keep their state by fiber or by thread: Rails (active_record/execution_state.rb), Sidekiq
  # (sidekiq/sub_tasks.rb), OpenTelemetry (opentelemetry.rb) and Datadog (datadog.rb). Each adds an heir, whose methods
  # take a block and return the block to run instead: `continued` for the block of {Heddle.run}, which is a part of its
  # caller's code, `inherited` for a task's, and `offloaded` for that of {Heddle.offload}. Without an heir this costs
  # nothing.
  #
  # @api private
  module Inheritance
    # Prepended to Heddle's singleton class.
    module Starts
      def run(**options, &block) = super(**options, &Inheritance.wrap(:continued, block))

      def spawn(**options, &block) = super(**options, &Inheritance.wrap(:inherited, block))

      def offload(&block) = super(&Inheritance.wrap(:offloaded, block))
    end

    # Prepended to {FiberPool}.
    module PoolStarts
      private

      def prepare(claimed, on_end, block) = super(claimed, on_end, Inheritance.wrap(:inherited, block))
    end
    private_constant :Starts, :PoolStarts

    @heirs = [].freeze

    class << self
      # From now on, for the rest of the process. The block of the first heir is the outermost.
      #
      # @param heir [Module]
      # @return [void]
      def add(heir)
        if @heirs.empty?
          Heddle.singleton_class.prepend(Starts)
          FiberPool.prepend(PoolStarts)
        end
        @heirs = [heir, *@heirs].freeze
      end

      # @param way [:continued, :inherited, :offloaded]
      # @param block [Proc, nil]
      # @return [Proc, nil]
      def wrap(way, block)
        return unless block

        @heirs.inject(block) { |inner, heir| heir.public_send(way, inner) }
      end
    end
  end
end

# frozen_string_literal: true

require_relative "../worker_threads"

module Heddle
  class Simulation
    # A thread or a process would run in real time, beside the simulation and in no order.
    module Threads
      # Prepended to Thread's singleton class.
      module ThreadMethods
        %i[new start fork].each do |name|
          # @api private
          define_method(name) do |*arguments, **options, &block|
            Threads.refuse("starts a thread: use Heddle.spawn") if Simulation.world
            super(*arguments, **options, &block)
          end
        end
      end

      # Prepended to Process's singleton class.
      module ProcessMethods
        # @api private
        def _fork
          Threads.refuse("forks: use Heddle.spawn, and hosts of the world") if Simulation.world
          super
        end
      end

      # Prepended to {WorkerThreads}: the block runs in its caller, after a while.
      module WorkerMethods
        # @api private
        def run(work, **options)
          world = Simulation.world or return super
          sleep(world.draw(0.0..0.01))
          work.call
        end
      end

      # @raise [Error]
      def self.refuse(what)
        raise Error, "in a simulation there is one thread, and this program #{what}"
      end

      Thread.singleton_class.prepend(ThreadMethods)
      Process.singleton_class.prepend(ProcessMethods)
      WorkerThreads.prepend(WorkerMethods)
    end
    private_constant :Threads
  end
end

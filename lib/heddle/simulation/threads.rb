# frozen_string_literal: true

require_relative "../core/worker_threads"
require_relative "refusing"

module Heddle
  class Simulation
    # A thread or a process would run in real time, beside the simulation and in no order.
    module Threads
      # A thread of Heddle's own for the whole process (it closes idle connections, say) is a task of the world instead.
      class Substitute
        # @return [String]
        attr_writer :name
        # @return [Boolean] an error ends the run
        attr_writer :report_on_exception

        def initialize(world, block)
          @alive = true
          world.start do
            block.call
          ensure
            @alive = false
          end
        end

        # @return [Boolean]
        def alive? = @alive

        # @return [void]
        def thread_variable_set(*) = nil
      end
      private_constant :Substitute

      OURS = File.expand_path("..", __dir__)
      private_constant :OURS

      # Prepended to Thread's singleton class.
      module ThreadMethods
        %i[new start fork].each do |name|
          # @api private
          define_method(name) do |*arguments, **options, &block|
            Simulation.world ? Threads.substitute(block, caller_locations(1, 1)) : super(*arguments, **options, &block)
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

      # Prepended to {Scheduler}'s singleton class.
      module SchedulerMethods
        # @api private
        def new(...)
          world = Simulation.world
          Threads.refuse("has a run of Heddle's in another one, too") if world && !world.here?
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

      class << self
        # @return [Substitute]
        # @raise [Error] for a thread of the program's
        def substitute(block, places)
          refuse("starts a thread: use Heddle.spawn") unless places.first.path.start_with?(OURS)

          Substitute.new(Simulation.world, block)
        end

        # @raise [Error]
        def refuse(what)
          raise Error, "in a simulation there is one thread, and this program #{what}"
        end
      end

      Thread.singleton_class.prepend(ThreadMethods)
      Process.singleton_class.prepend(ProcessMethods)
      {Process.singleton_class => %i[public spawn], Kernel => %i[private spawn system `],
       Kernel.singleton_class => %i[public spawn system `], IO.singleton_class => %i[public popen]}
        .each do |owner, (visibility, *names)|
          owner.prepend(Refusing.module_of(names, visibility: visibility) do
            refuse("runs a command, which would take real time")
          end)
        end
      Scheduler.singleton_class.prepend(SchedulerMethods)
      WorkerThreads.prepend(WorkerMethods)
    end
    private_constant :Threads
  end
end

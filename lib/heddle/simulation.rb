# frozen_string_literal: true

require_relative "../heddle"
require_relative "timeout" # Ruby's own makes a thread

module Heddle
  # Runs code under test in a simulated world: a virtual clock, and hosts that are connected by links with latency,
  # losses and resets. All that happens depends on a seed, so that a run that fails can be run again, and no time is
  # spent on waiting: when nothing runs, the clock jumps to the next timer.
  #
  #   require "heddle/simulation"
  #
  #   Heddle::Simulation.run(seeds: 1000) do |world|
  #     world.host("api.example", "10.0.0.1") { |server| server.http(80) { |request| "hello" } }
  #     world.link("api.example", latency: 0.02..0.3, loss: 0.01, reset: 0.005)
  #     assert_equal "hello", Net::HTTP.get(URI("http://api.example/"))
  #   end
  #
  # The block runs in a task of {Heddle.run}, once for each seed.
  class Simulation
    LONGEST = 100 * 365 * 86_400 # seconds of a run
    private_constant :LONGEST

    # What a program may not do in a simulation.
    class Error < RuntimeError
      include Heddle::Error
    end

    # Added to the error of the seed that failed.
    module Seeded
      # @return [Integer]
      attr_accessor :seed
      # @return [Array<String>] what went wrong in the world, in its order; with `shrink: true` only what it takes
      attr_accessor :faults
    end

    class << self
      # @api private
      # @return [World, nil] the one that runs now
      attr_reader :world

      # Runs the block for each seed. The first error ends the run: it is raised as it is, extended by {Seeded}, and a
      # line on stderr says how to run its seed alone.
      #
      # @param seeds [Integer, Enumerable<Integer>] how many, from 1 on; or which
      # @param trace [Boolean, #puts] whether to print what happens, and where to; true for stderr
      # @param shrink [Boolean] whether to look for the fewest faults with which the seed that failed still fails, by
      #   the same class of error; they are printed, and are the error's `faults`
      # @param time_limit [Numeric] virtual seconds after which {Deadlock} ends the block
      # @yieldparam world [World]
      # @return [Integer] a digest of all that happened: the same for the same seeds and the same code
      # @raise [Error] inside a simulation, beside another one, and inside {Heddle.run}
      def run(seeds: 100, trace: false, shrink: false, time_limit: 30 * 86_400, &block)
        raise ArgumentError, "Heddle::Simulation.run needs a block" unless block

        list = list_of(seeds)
        limit = positive(time_limit)
        log = log_of(trace)
        claim do
          list.reduce(0) do |digest, seed|
            world = World.new(seed, log)
            Zlib.crc32([one(world, limit, &block)].pack("N"), digest)
          rescue Exception => error # rubocop:disable Lint/RescueException -- it is only annotated
            report(error, world, limit, shrink, &block)
            raise
          end
        end
      end

      # @api private
      # @raise [Error]
      def refuse(what)
        raise Error, "#{what} would reach the real network from within a simulation: use TCPSocket, TCPServer, " \
          "UDPSocket with send and recvfrom, UNIXSocket, UNIXServer, or Socket with TCP"
      end

      private

      def list_of(seeds)
        list = seeds.is_a?(Integer) ? (1..seeds) : seeds
        list = Array(list) unless list.is_a?(Range) # which may be long, or endless
        (list.is_a?(Range) ? list.first(1) : list).each do |seed|
          raise TypeError, "a seed must be an Integer, not #{seed.inspect}" unless seed.is_a?(Integer)
        end
        raise ArgumentError, "there must be a seed at least, not #{seeds.inspect}" if list.first(1).empty?

        list
      end

      def log_of(trace)
        return (trace == true) ? $stderr : nil if [true, false, nil].include?(trace)
        return trace if trace.respond_to?(:puts)

        raise TypeError, "trace: must be true or something with a method puts, not #{trace.inspect}"
      end

      def positive(seconds)
        return seconds if seconds.is_a?(Numeric) && seconds.real? && seconds.positive? && seconds <= LONGEST

        raise ArgumentError, "the time limit must be positive seconds, at most #{LONGEST}, not #{seconds.inspect}"
      end

      def claim
        raise Error, "a simulation runs already: there is one at a time in a process, and none inside another" if @busy
        if Fiber.scheduler
          raise Error, "Heddle::Simulation.run makes a run of its own: call it outside of Heddle.run"
        end
        if (thread = Scheduler.open.map(&:last).find { |other| other != Thread.current })
          raise Error, "the timers of Heddle's run in #{thread.inspect} would take the simulation's clock"
        end

        @busy = true
        begin
          yield
        ensure
          @busy = false
        end
      end

      # @return [Integer] the digest
      def one(world, limit, &block)
        @world = world
        world.run(limit, &block)
        world.digest
      ensure
        @world = nil
      end

      def report(error, world, limit, shrink, &block)
        return if error.is_a?(SignalException) || error.is_a?(SystemExit)

        warn "heddle/simulation: seed #{world.seed} fails: #{error.class}. " \
          "Heddle::Simulation.run(seeds: [#{world.seed}], trace: true) { … } runs it alone and prints what happens"
        faults = world.faults
        faults = shrunk(error, world, limit, &block) if shrink
        return if error.frozen?

        error.extend(Seeded).seed = world.seed
        error.faults = faults.map(&:to_s)
      end

      def shrunk(error, world, limit, &block)
        found = world.faults
        Shrinking.new do |names|
          attempt = World.new(world.seed, nil, names)
          failed = fails_alike?(error, attempt, limit, &block)
          found = attempt.faults if failed
          failed
        end.of(found.map(&:name))
        warn "heddle/simulation: it still fails with #{found.size} of #{world.faults.size} faults:", *found
        found
      end

      def fails_alike?(error, world, limit, &block)
        one(world, limit, &block)
        false
      rescue Exception => other # rubocop:disable Lint/RescueException -- of the code under test
        raise if other.is_a?(SignalException) || other.is_a?(SystemExit)

        other.instance_of?(error.class)
      end
    end
  end
end

require_relative "simulation/world"
require_relative "simulation/clock"
require_relative "simulation/helper"
require_relative "simulation/shrinking"
require_relative "simulation/sockets"
require_relative "simulation/threads"

# frozen_string_literal: true

require "socket"
require "zlib"
require_relative "check"
require_relative "clock"
require_relative "faults"
require_relative "host"
require_relative "libraries"
require_relative "link"
require_relative "network"

module Heddle
  class Simulation
    # What surrounds the code under test in one run.
    class World
      NAMES = 0.001..0.02 # seconds that a look-up takes
      private_constant :NAMES

      # @return [Integer]
      attr_reader :seed
      # @return [Random] all that happens by chance is drawn from here
      attr_reader :random
      # @return [Integer] of all that has happened
      attr_reader :digest

      # @api private
      # @return [Network]
      attr_reader :network

      # @api private
      # @return [Array<Faults::Fault>]
      def faults = @faults.happened

      # @api private
      # @param only [Array<String>, nil] the names of the only faults that may happen
      def initialize(seed, log, only = nil)
        @seed, @log = seed, log
        @faults = Faults.new(only)
        @random = Random.new(seed)
        @digest = 0
        @network = Network.new(self)
        @names, @questions = {"localhost" => ["127.0.0.1"]}, {}
        @work = Thread::Queue.new
        @running = {}.compare_by_identity # the world's own tasks
        @switches = 0
        @named = Hash.new(0)
        @at_switches = []
      end

      # A host with these addresses, by default one of its own. Its link is quick and loses nothing, see {#link}.
      #
      # @param name [String]
      # @param addresses [Array<String>]
      # @yieldparam host [Host]
      # @return [Host]
      def host(name, *addresses)
        host = @network.add(name, addresses)
        name(name, *host.addresses)
        yield host if block_given?
        host
      end

      # How a host's connections behave from now on.
      #
      # @param name [String] the host's
      # @param options see {Link#initialize}
      def link(name, **options)
        @network.host(name).link = Link.new(**options)
      end

      # Serves a UNIX socket on the computer of the code under test, each connection in a task of its own.
      #
      # @param path [String] no file is made
      # @yieldparam socket [UNIXSocket]
      def unix(path, &block)
        Check.server(block)
        @network.own.serve(Check.kind(String, path, "a path must be a String"), block)
      end

      # What the name means from now on.
      #
      # @param name [String]
      # @param addresses [Array<String>] none: there is no such name
      # @raise [TypeError, ArgumentError]
      def name(name, *addresses)
        @names[Check.name(name).downcase] = addresses.map { |address| Check.address(address) }
      end

      # Nothing passes between the host and the code under test, until {#heal}.
      def part(name)
        note { "#{name} parted" }
        @network.host(name).parted = true
      end

      # @see #part
      def heal(name)
        note { "#{name} healed" }
        @network.host(name).parted = false
        @healed&.each { |queue| queue << true }
        @healed = nil
      end

      # @return [Float] virtual seconds since the beginning
      def now = Clock.seconds

      # @param range [Range, nil]
      # @return [Numeric] a number by chance: of the range, or from 0 to 1
      def draw(range = nil) = range ? @random.rand(range) : @random.rand

      # Runs the block in a task of the world's.
      def start(&block)
        raise ArgumentError, "World#start needs a block" unless block

        @work << block
      end

      # A fault of your own: one that `shrink:` can leave out.
      #
      # @param probability [Numeric]
      # @param name [String] what goes wrong
      # @return [Boolean] whether it goes wrong now
      def fault?(probability, name)
        Check.probability("probability", probability)
        count = @named[name] += 1
        @faults.happens?(probability, "#{name} (#{count})").tap { |happens| note { name } if happens }
      end

      # Calls the block at some of the moments at which the loop is about to go on with another task: after what woke
      # that task, and before it runs. Here belongs what may happen at any time: a task is cancelled or interrupted,
      # memory is collected. The block must not wait.
      #
      # @param probability [Numeric]
      # @yieldparam number [Integer] of the moment, from 1
      def at_switches(probability = 1, &block)
        raise ArgumentError, "World#at_switches needs a block" unless block
        raise Error, "this world is over" unless Simulation.world.equal?(self)

        Check.probability("probability", probability)
        @at_switches << [probability, block]
        Core.at_switches = true
      end

      # Raises the exception in the task, from its wait, as Thread#raise would. It waits for the end of a shield.
      #
      # @param task [Task]
      # @param exception [Exception]
      def interrupt(task, exception)
        Check.kind(Task, task, "World#interrupt needs a task").interrupt(exception)
      end

      # @api private
      # @return [Boolean] whether this is the simulation's thread
      def here? = Thread.current == @thread

      # @api private
      def at_switch
        return unless here?
        raise @failure ||= Error.new("the block of World#at_switches must not wait") if @switching # from that wait

        guard { switch }
      end

      # @api private
      # @return [Faults::Of]
      def faults_of(subject) = Faults::Of.new(@faults, subject)

      # Adds a line to what has happened.
      #
      # @api private
      def note
        line = "#{format("%.9f", now)} #{yield}"
        @digest = Zlib.crc32(line, @digest)
        Fiber.new(blocking: true) { @log.puts(line) }.resume if @log # a trace must not change what happens
      end

      # @api private
      def run(limit)
        Libraries.refuse
        clear_process
        @thread = Thread.current
        outer = Kernel.rand(1 << 64) # the program's own numbers go on after the run, and as its own seed has them
        Kernel.srand(@seed)
        Core.enter(self, @seed & 0xffff_ffff_ffff_ffff, Clock::START, Clock::START + (limit * 1e9).round)
        Heddle.run { beside_services { yield self } }
      ensure
        begin
          close
          clear_process
        ensure
          Core.leave
          Kernel.srand(outer) if outer
        end
      end

      # ---- what the core asks

      # @api private
      def connect(descriptor, sockaddr)
        answering { @network.connect(descriptor, sockaddr) }
      end

      # @api private
      def bind(descriptor, sockaddr)
        answering do
          @network.bind(descriptor, Addrinfo.new(sockaddr))
          0
        end
      end

      # @api private
      def connect_error(descriptor) = @network.connect_error(descriptor)

      # @api private
      def look_up(question, host, family)
        @questions[question] = true
        start do
          sleep(draw(NAMES))
          addresses = addresses_of(host, family)
          note { "#{host} is #{addresses.empty? ? "unknown" : addresses.map(&:ip_address).join(", ")}" }
          answer(question, addresses.empty? ? Socket::EAI_NONAME : 0, addresses.map(&:to_sockaddr))
        end
      end

      # ---- what sockets and connections ask

      # Waits until something passes between the host and the code under test.
      #
      # @api private
      def pass(host)
        while host.parted
          (@healed ||= []) << (queue = Thread::Queue.new)
          queue.pop
        end
      end

      private

      # What the process keeps between two runs: connections, and answers for names.
      def clear_process
        NetHTTP.keep_alive_clear if defined?(NetHTTP.keep_alive_clear)
        kept = Heddle.resolver_cache
        Heddle.resolver_cache = kept # forgets the answers
      end

      def beside_services
        services = Heddle.spawn(name: "simulated world") { loop { work(@work.pop) } }
        code = Heddle.spawn(name: "code under test") do
          @code = Task.current
          yield
        end
        code.wait
        raise @failure if @failure

        code.value
      ensure
        Core.at_switches = false
        [services, *@running.keys].each { |task| task&.cancel }
      end

      # The task enters itself: when it waits, the code under test may end before the spawner goes on.
      def work(block)
        Heddle.spawn do
          @running[Task.current] = true
          guard(&block)
        ensure
          @running.delete(Task.current)
        end
      end

      def switch
        @switching = true
        number = @switches += 1
        @at_switches.each_with_index do |(probability, block), index|
          name = "switch #{number}#{" (#{index + 1})" if index.positive?}"
          block.call(number) if @faults.happens?(probability, name)
        end
      ensure
        @switching = false
      end

      # An error of the world's own code ends the run: failed assertions of test frameworks, too, which are no
      # StandardErrors.
      def guard
        yield
      rescue Cancellation, SignalException, SystemExit
        raise
      rescue Exception => error # rubocop:disable Lint/RescueException -- see above
        failed(error)
      end

      def failed(error)
        @failure ||= error
        @code.cancel
      end

      # The core must not be left by an exception, not even by one from another thread: it ends the run.
      def answering
        yield
      rescue SystemCallError => error
        error.errno
      rescue Exception => error # rubocop:disable Lint/RescueException -- the run raises it
        failed(error)
        Errno::EIO::Errno
      end

      def answer(question, error, addresses)
        Core.answer(question, error, addresses) if @questions.delete(question)
      end

      def addresses_of(host, family)
        all = (@names[host.downcase] || []).map { |address| Addrinfo.tcp(address, 0) }
        (family == Socket::AF_UNSPEC) ? all : all.select { |address| address.afamily == family }
      end

      def close
        @questions.keys.each { |question| answer(question, Socket::EAI_AGAIN, []) }
        @network.close
        @network.datagrams.close
      end
    end
  end
end

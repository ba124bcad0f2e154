# frozen_string_literal: true

require "ipaddr"
require "socket"
require "zlib"
require_relative "clock"
require_relative "connection"
require_relative "faults"
require_relative "host"
require_relative "libraries"
require_relative "link"

module Heddle
  class Simulation
    # What surrounds the code under test in one run.
    class World
      FIRST_PORT = 49_152 # RFC 6335
      NAMES = 0.001..0.02 # seconds that a look-up takes
      UNREACHABLE = 3.0   # seconds until a router says so
      SYN_RETRIES = [1, 2, 4, 8, 16, 32, 64].freeze # seconds between Linux's tries to connect
      OWN = "10.255.0.1"
      private_constant :FIRST_PORT, :NAMES, :UNREACHABLE, :SYN_RETRIES, :OWN

      # @return [Integer]
      attr_reader :seed
      # @return [Random] all that happens by chance is drawn from here
      attr_reader :random
      # @return [Integer] of all that has happened
      attr_reader :digest

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
        @hosts, @names, @served = {}, {"localhost" => ["127.0.0.1"]}, {}
        @sides, @questions = {}, {}
        @work = Thread::Queue.new
        @running = {}.compare_by_identity # the world's own tasks
        @port = FIRST_PORT
        @opened = @switches = 0
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
        addresses = ["10.0.#{@hosts.size / 250}.#{(@hosts.size % 250) + 1}"] if addresses.empty?
        addresses.each { |address| IPAddr.new(address) }
        host = @hosts[name] = Host.new(name, addresses)
        addresses.each { |address| @served[address] = host }
        name(name, *addresses)
        yield host if block_given?
        host
      end

      # How a host's connections behave from now on.
      #
      # @param name [String] the host's
      # @param options see {Link#initialize}
      def link(name, **options)
        known(name).link = Link.new(**options)
      end

      # What the name means from now on.
      #
      # @param name [String]
      # @param addresses [Array<String>] none: there is no such name
      def name(name, *addresses)
        @names[name.downcase] = addresses
      end

      # Nothing passes between the host and the code under test, until {#heal}.
      def part(name)
        note { "#{name} parted" }
        known(name).parted = true
      end

      # @see #part
      def heal(name)
        note { "#{name} healed" }
        known(name).parted = false
        @healed&.each { |queue| queue << true }
        @healed = nil
      end

      # @return [Float] virtual seconds since the beginning
      def now = (Core.now - Clock::START) / 1e9

      # @param range [Range, nil]
      # @return [Numeric] a number by chance: of the range, or from 0 to 1
      def draw(range = nil) = range ? @random.rand(range) : @random.rand

      # Runs the block in a task of the world's.
      def start(&block)
        @work << block
      end

      # A fault of your own: one that `shrink:` can leave out.
      #
      # @param probability [Numeric]
      # @param name [String] what goes wrong
      # @return [Boolean] whether it goes wrong now
      def fault?(probability, name)
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

        @at_switches << [probability, block]
        Core.at_switches = true
      end

      # Raises the exception in the task, from its wait, as Thread#raise would. It waits for the end of a shield.
      #
      # @param task [Task]
      # @param exception [Exception]
      def interrupt(task, exception)
        task.interrupt(exception)
      end

      # @api private
      def at_switch
        return if Thread.current != @thread
        raise Error, "the block of World#at_switches must not wait" if @switching

        @switching = true
        number = @switches += 1
        @at_switches.each_with_index do |(probability, block), index|
          block.call(number) if @faults.happens?(probability, "switch #{number}#{" (#{index + 1})" if index.positive?}")
        end
      rescue => error
        failed(error)
      ensure
        @switching = false
      end

      # @api private
      # @return [Faults::Of]
      def faults_of(subject) = Faults::Of.new(@faults, subject)

      # @api private Adds a line to what has happened.
      def note
        line = "#{format("%.9f", now)} #{yield}"
        @digest = Zlib.crc32(line, @digest)
        @log&.puts(line)
      end

      # @api private
      def run(limit)
        Libraries.refuse
        clear_process
        @thread = Thread.current
        Core.enter(self, @seed & 0xffff_ffff_ffff_ffff, Clock::START, Clock::START + (limit * 1e9).round)
        Heddle.run { beside_services { yield self } }
      ensure
        close
        clear_process
        Core.leave
      end

      # ---- what the core asks

      # @api private
      # @return [Integer] an errno
      def connect(descriptor, sockaddr)
        far = UNIXSocket.for_fd(Core.replace(descriptor))
        address = Addrinfo.new(sockaddr)
        local = Addrinfo.tcp(OWN, @port += 1)
        side = Connection::Side.new(far, descriptor, inode(descriptor), local, address)
        @sides[side.inode] = side
        start { establish(side) }
        Errno::EINPROGRESS::Errno
      end

      # @api private
      # @return [Integer] an errno, or 0
      def connect_error(descriptor) = @sides[inode(descriptor)]&.error || 0

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

      # @api private
      # @return [Connection::Side, nil]
      def side_of(io)
        @sides[io.stat.ino]
      end

      # @api private Waits until something passes between the host and the code under test.
      def pass(host)
        while host.parted
          (@healed ||= []) << (queue = Thread::Queue.new)
          queue.pop
        end
      end

      # @api private The side's socket gets ECONNRESET, as when the other end of a pair is closed with unread bytes.
      def reset(side)
        return if side.far.closed?

        begin
          own = IO.for_fd(side.descriptor, "r+", autoclose: false)
          own.write_nonblock("x", exception: false) if own.stat.ino == side.inode
        rescue SystemCallError, IOError
          nil # closed by the program, or its other direction is
        end
        side.far.close
      end

      # @api private
      def forget(side)
        side.far.close
        @sides.delete(side.inode)
      end

      private

      # What the process keeps between two runs: connections, and answers for names.
      def clear_process
        NetHTTP.keep_alive_clear if defined?(NetHTTP.keep_alive_clear)
        kept = Heddle.resolver_cache
        Heddle.resolver_cache = kept # forgets the answers
      end

      def known(name)
        @hosts.fetch(name) { raise ArgumentError, "the world has no host #{name.inspect}: call world.host first" }
      end

      def inode(descriptor) = IO.for_fd(descriptor, autoclose: false).stat.ino

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

      def work(block)
        task = Heddle.spawn do
          block.call
        rescue => error
          failed(error)
        ensure
          @running.delete(task)
        end
        @running[task] = true unless task.ended?
      end

      def failed(error)
        @failure ||= error
        @code.cancel
      end

      def answer(question, error, addresses)
        Core.answer(question, error, addresses) if @questions.delete(question)
      end

      def addresses_of(host, family)
        all = (@names[host.downcase] || []).map { |address| Addrinfo.tcp(address, 0) }
        (family == Socket::AF_UNSPEC) ? all : all.select { |address| address.afamily == family }
      end

      # ---- connecting

      def establish(side)
        host = @served[side.remote.ip_address]
        name = "#{side.remote.inspect_sockaddr} ##{@opened += 1}"
        error = host ? outcome(host, side.remote.ip_port, faults_of(name)) : unreachable
        note { "#{name} #{error ? error.name : "connected"}" }
        return fail(side, error) if error
        side.connected = true
        return if drain(side.far)

        accept(host, name, side)
      end

      def unreachable
        sleep(UNREACHABLE)
        Errno::EHOSTUNREACH
      end

      # @return [Class, nil] the error
      def outcome(host, port, faults)
        SYN_RETRIES.each do |seconds|
          delay = handshake(host.link, faults) unless host.parted
          next sleep(seconds) unless delay

          sleep(delay / 1e9)
          return host.service(port) ? nil : Errno::ECONNREFUSED
        end
        Errno::ETIMEDOUT
      end

      def handshake(link, faults)
        delays = Array.new(2) { faults.next && link.delay(faults) }
        delays.sum if delays.all?
      end

      def fail(side, error)
        side.error = error::Errno
        side.far.close # with unread bytes: the socket is ready, with an error
      end

      # Takes what made the socket unwritable. Returns whether it is closed already.
      def drain(far)
        nil while (bytes = far.read_nonblock(1 << 16, exception: false)).is_a?(String)
        far.close if bytes.nil?
        bytes.nil?
      end

      def accept(host, name, near)
        own, far = UNIXSocket.pair
        own.autoclose = false
        socket = TCPSocket.for_fd(own.fileno)
        away = Connection::Side.new(far, socket.fileno, inode(socket.fileno), near.remote, near.local)
        @sides[away.inode] = away
        service = host.service(near.remote.ip_port)
        Connection.new(self, host, name, near, away).open
        start { serve(socket, service, name) }
      end

      def serve(socket, service, name)
        service.call(socket)
      rescue SystemCallError, IOError => error
        note { "#{name} server: #{error.class}" }
      ensure
        socket.close
      end

      def close
        @questions.keys.each { |question| answer(question, Socket::EAI_AGAIN, []) }
        @sides.each_value { |side| side.far.close }
      end
    end
  end
end

# frozen_string_literal: true

# Interrupts operations that open and close descriptors, at every moment at which Ruby lets an exception in, while
# another thread opens, reads and checks files. A number with two owners sooner or later closes one of that thread's
# files; a number without an owner stays open.
#
#   ruby -Ilib test/support/interrupter.rb SECONDS SEED [OPERATIONS [WAYS]]
#
# The moments of an operation are the events of a TracePoint: lines, and calls and returns of Ruby methods, C methods
# and blocks. Each operation runs once to count them, and then once for each moment, in an order that the seed
# determines, until the time is over. The way "stray" is another thread that raises at any time, also inside of C
# code.
#
# Exits with status 1 where it found a fault: a file that another object closed, a number with two owners, a number
# with none.

require "socket"
require "openssl"
require "timeout"
require "tmpdir"
require "net/http"
require_relative "certificates"
require_relative "interrupter_servers"
require_relative "slowness"

INTERRUPTER_SERVERS = InterrupterServers.start
require "heddle"
require "heddle/net_http"
require "heddle/memcached"
require "heddle/db"

class Interrupter
  Interrupted = Class.new(Exception) # rubocop:disable Lint/InheritException -- nobody is to rescue it

  EVENTS = %i[line call return c_call c_return b_call b_return].freeze
  # Ruby raises "exception reentered" for an interrupt there.
  OF_EXCEPTIONS = %i[backtrace set_backtrace exception].freeze
  FORGOTTEN = 8 # how many objects may be left uncollected at the end
  UPLOADED = File.open(__FILE__) # opened once: Ruby's own File.open may leave a file open when it is interrupted
  # Ruby's own accept loses a connection that arrives while another thread interrupts.
  NOT_ACCEPTING = %i[timeout deadline stray].freeze
  BETWEEN_LOOKS = 8 # interrupts
  PATIENCE = 30 # seconds after which an interrupted operation counts as hanging
  SPAN = 0.03 # seconds of the deadlines and timeouts that interrupt

  # A subclass with its own initialize, so that Ruby connects.
  class OwnSocket < TCPSocket
    def initialize(host, port) = super
  end

  OPERATIONS = {
    new: ->(at) { TCPSocket.new("localhost", at.plain).close },
    open: ->(at) { TCPSocket.open("localhost", at.plain) { |socket| socket.sync } },
    address: ->(at) { TCPSocket.new("127.0.0.1", at.plain).close },
    own: ->(at) { OwnSocket.new("localhost", at.plain).close },
    socket_tcp: ->(at) { Socket.tcp("localhost", at.plain) { |socket| socket.sync } },
    http: ->(at) { Net::HTTP.start("127.0.0.1", at.plain) { |http| http.get("/") } },
    http_name: ->(at) { Net::HTTP.start("localhost", at.plain, open_timeout: 5) { |http| http.get("/") } },
    https:
      ->(at) { Net::HTTP.start("localhost", at.tls, use_ssl: true, ca_file: at.authority) { |http| http.get("/") } },
    upload: lambda do |at|
      put = Net::HTTP::Put.new("/").tap { |request| request.body_stream = UPLOADED.tap(&:rewind) }
      put["Content-Length"] = UPLOADED.size
      Net::HTTP.start("127.0.0.1", at.plain) { |http| http.request(put) }
    end,
    stream: ->(at) {
      Heddle::Stream.connect("localhost", at.plain, timeout: 5).then do |stream|
        stream.write("PING\r\n") && stream.gets && stream.close
      end
    },
    stream_tls: ->(at) { Heddle::Stream.connect("localhost", at.tls, timeout: 5, tls: {ca_file: at.authority}).close },
    stream_unix: ->(at) { Heddle::Stream.unix(at.path, timeout: 5).close },
    accept: lambda do |_at|
      server = TCPServer.new("127.0.0.1", 0)
      client = Heddle::Stream.connect("127.0.0.1", server.addr[1], timeout: 5)
      accepted = Heddle::Stream.new(server.accept)
      [client, accepted, server].each(&:close)
    end,
    memcached:
      ->(at) { Heddle::Memcached.new("localhost:#{at.memcached}", timeout: 5).tap { |cache| cache.get("key") }.close },
    database: ->(at) { Heddle::DB.connect(at.database, timeout: 5).close },
    guard: lambda do |at|
      socket = TCPSocket.new("127.0.0.1", at.plain)
      Heddle::SocketGuard.new(socket.fileno, 60).release
      socket.close
    end,
    run: ->(_at) { Heddle.run { Heddle.spawn { sleep(0) }.value } },
    scheduler:
      ->(_at) { Thread.new { Fiber.set_scheduler(Heddle::Scheduler.new) && Fiber.schedule { sleep(0) } }.join },
    offload: ->(_at) { Heddle.run { Heddle.offload { IO.pipe.each(&:close) } } },
    child: ->(_at) { Process.wait(Process.spawn("true")) },
    fork: ->(at) {
      Heddle.deadline(10) { TCPSocket.open("localhost", at.plain) { Process.wait(fork { GC.start && exit!(0) }) } }
    },
    processes: ->(_at) { Heddle.map([1, 2], processes: 2, fibers: 1) { |item| item } }
  }.freeze

  # Outside of tasks and deadlines Ruby itself connects, and its connect has its own faults on 3.4 and later
  # (doc/limits.md).
  PLACES = {
    bare: ->(operation) { operation },
    thread: ->(operation) { ->(at) { Heddle.deadline(60) { operation.call(at) } } },
    task: ->(operation) { ->(at) { Heddle.run { operation.call(at) } } }
  }.freeze

  # In a plain thread Ruby's Timeout, interrupted at its beginning, may raise in the thread long after, and the main
  # thread still exists then.
  USE_TIMEOUT = %i[http http_name https upload].freeze

  # The ways to interrupt: what is around the operation, and what happens at the moment. "trap" is for the main thread
  # only.
  WAYS = {
    raise: [->(body) { body.call }, -> { Thread.current.raise(Interrupted) }],
    kill: [->(body) { body.call }, -> { Thread.current.kill }],
    # The signal may go to another native thread first.
    trap: [->(body) { body.call }, -> { Process.kill(:USR1, Process.pid) && linger }],
    timeout: [->(body) { Timeout.timeout(SPAN, &body) }, -> { linger }],
    deadline: [->(body) { Heddle.deadline(SPAN, &body) }, -> { linger }],
    cancel: [->(body) { Heddle.run { Heddle.spawn(&body).value } }, -> { Heddle::Task.current&.cancel }],
    stray: [->(body) { body.call }, nil]
  }.freeze

  # Waits until a limit is over, and longer, so that the thread that enforces it gets its turn.
  def self.linger
    from = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    Thread.pass while Process.clock_gettime(Process::CLOCK_MONOTONIC) - from < SPAN * 2
  end

  # One operation, in one place, interrupted in one way.
  class Round
    attr_reader :name, :interrupted

    def initialize(name, body, way, random)
      @name, @body, @way, @random = name, body, way, random
      @wrap, @interrupt = WAYS.fetch(way)
      @limited = %i[timeout deadline].include?(way)
      @interrupted = 0
    end

    # Counts the moments, in the second of two runs, since the first fills caches and loads lazily loaded code.
    def prepare
      2.times { perform(0) }
      @moments = (@way == :stray) ? Array.new(200) { rand } : (1..@seen).to_a
      @moments.shuffle!(random: @random)
      @count = @moments.size
    end

    # @return [Boolean] false once every moment was interrupted
    def interrupt
      return false unless (moment = @moments.pop)

      @interrupted += 1
      (@way == :stray) ? stray(moment) : perform(moment)
      true
    end

    def coverage = "#{@interrupted} of #{@count}"

    private

    def perform(moment)
      @seen = 0
      return inside(moment) if @way == :trap

      thread = Thread.new { inside(moment) }
      thread.join(Slowness.stretch(PATIENCE)) or raise "#{name} hangs:\n#{thread.backtrace&.join("\n")}"
    rescue Interrupted
      nil # arrived late: Ruby's openssl defers interrupts in its callbacks
    end

    def inside(moment)
      interrupt, pid = @interrupt, Process.pid
      trace = TracePoint.new(*EVENTS) do |event|
        @seen += 1
        if @seen >= moment && interrupt && moment > 0 && Process.pid == pid && !OF_EXCEPTIONS.include?(event.method_id)
          due, interrupt = interrupt, nil
          due.call
        end
      end
      body = proc do
        trace.enable(target_thread: Thread.current)
        @body.call
      ensure
        trace.disable
      end
      (moment.zero? && @limited) ? body.call : @wrap.call(body)
    rescue Interrupted, StandardError, Heddle::Cancellation => error
      raise if moment.zero?
      error
    ensure
      trace&.disable
      # A run that was interrupted at its end may leave its scheduler set on the thread.
      Fiber.set_scheduler(nil) if @way == :trap && Fiber.scheduler
    end

    # Interrupts anywhere, also where Ruby's methods wait in C.
    def stray(share)
      thread = Thread.new do
        @body.call
      rescue Interrupted, StandardError
        nil
      end
      sleep(share * 0.003)
      thread.raise(Interrupted)
      thread.join(Slowness.stretch(PATIENCE)) or raise "#{name} hangs:\n#{thread.backtrace&.join("\n")}"
    rescue Interrupted
      nil # arrived when the operation was over
    end
  end

  # Opens, reads and checks files, without a pause.
  class Victim
    FILES = 3

    attr_reader :faults, :rounds

    def initialize(folder)
      @paths = Array.new(FILES) { |i| File.join(folder, "file#{i}").tap { |path| File.write(path, "content of #{i}") } }
      @faults = []
      @rounds = 0
      @lock = Thread::Mutex.new
      @thread = Thread.new do
        loop do
          @lock.synchronize { look }
          Thread.pass
        end
      end
    end

    # No file is open during the block.
    def rest(&block) = @lock.synchronize(&block)

    def stop = @thread.kill.join

    private

    def look
      files = @paths.map { |path| File.open(path) }
      ends = IO.pipe
      identities = [*files, *ends].map { |io| io.stat.ino }
      Thread.pass
      files.each_with_index do |file, i|
        fault("#{file.path} has #{file.read.inspect}") unless file.tap(&:rewind).read == "content of #{i}"
      end
      fault("a number names another file") unless [*files, *ends].map { |io| io.stat.ino } == identities
      Thread.pass
      [*files, *ends].each(&:close)
      @rounds += 1
    rescue IOError, SystemCallError => error
      fault("#{error.class}: #{error.message}, at #{error.backtrace&.first}")
    ensure
      [*files, *ends].each { |io| io.close rescue fault("close: #{$!.message}") } # rubocop:disable Style/RescueModifier
    end

    def fault(text) = @faults << text
  end

  def initialize(seconds, seed, operations, ways)
    @seconds, @random = seconds, Random.new(seed)
    @faults = []
    @rounds = operations.product(PLACES.keys, ways).filter_map do |operation, place, way|
      next if place == :task && %i[run scheduler offload].include?(operation) # nothing else
      next if RUBY_VERSION >= "3.4" && (place == :bare || operation == :own) # Ruby's
      next if place == :task && way == :trap && operation == :processes
      next if operation == :accept && NOT_ACCEPTING.include?(way)
      next if way == :trap && USE_TIMEOUT.include?(operation)
      next if way == :cancel && place == :task # already runs in a task

      Round.new("#{operation} in a #{place} by #{way}", body_of(operation, place), way, @random)
    end
    @rounds.shuffle!(random: @random)
  end

  def run
    trap(:USR1) { raise Interrupted }
    Dir.mktmpdir do |folder|
      @baseline = descriptors
      @known = {}
      victim = Victim.new(folder)
      interrupt_all(victim)
      victim.stop
      @faults.concat(victim.faults)
      settle
      hit = @rounds.count { |round| round.interrupted > 0 }
      puts "#{@rounds.sum(&:interrupted)} interrupts in #{hit} of #{@rounds.size} rounds, " \
        "#{victim.rounds} looks at the victim's files"
    end
    @rounds.each { |round| puts "#{round.name}: #{round.coverage}" if ENV["VERBOSE"] }
    @faults.tally.each { |fault, times| puts "FAULT (#{times} times) #{fault}" }
    @faults.empty?
  end

  private

  def body_of(operation, place)
    body = PLACES.fetch(place).call(OPERATIONS.fetch(operation))
    -> { body.call(INTERRUPTER_SERVERS) }
  end

  # Each round gets as much time as any other.
  def interrupt_all(victim)
    finish = now + @seconds
    @rounds.each_with_index do |round, index|
      share = (finish - now) / (@rounds.size - index)
      limit = now + share
      round.prepare
      loop do
        break unless round.interrupt
        until victim.faults.empty?
          @faults << "#{victim.faults.shift} (at or after #{round.name}, interrupt #{round.interrupted})"
        end
        victim.rest { look_at_owners(round) } if (round.interrupted % BETWEEN_LOOKS).zero?
        break if now > limit
      end
      victim.rest { look_at_owners(round) }
    end
  end

  # Finds numbers that no object owns, or that two own.
  def look_at_owners(round)
    unowned = unowned_descriptors
    if unowned.any?
      GC.start # guards own numbers, too
      unowned = unowned_descriptors & unowned
      guards = ObjectSpace.each_object(Heddle::SocketGuard).count
      unowned = [] if guards.between?(unowned.size, FORGOTTEN)
    end
    (unowned - @known.keys).each do |number, file|
      @known[[number, file]] = true
      @faults << "no object owns the descriptor of #{file.sub(/\d+/, "…")} (after #{round.name})"
    end
    owners.group_by(&:last).each_value do |some|
      some.select! do |io, number|
        io.autoclose? && io.fileno == number && !io.closed?
      rescue
        false
      end
      if some.size > 1
        @faults << "one descriptor belongs to #{some.map { |io, _| io.class }.join(" and ")} (after #{round.name})"
      end
    end
  end

  def unowned_descriptors
    open = descriptors - @baseline
    owned = owners.to_h { |_, number| [number, true] }
    open.reject { |number, file| owned[number] || file.start_with?("anon_inode") }
  end

  # The open IOs, and their numbers.
  def owners
    ObjectSpace.each_object(IO).filter_map do |io|
      [io, io.fileno]
    rescue IOError
      nil # closed, or not open yet
    end
  end

  # The number and the file of each.
  def descriptors
    Dir.children("/proc/self/fd").filter_map do |number|
      [number.to_i, File.readlink("/proc/self/fd/#{number}")]
    rescue Errno::ENOENT
      nil # the folder's own
    end
  end

  # Descriptors that are still open at the end. Ruby may take leftovers on a stack for a reference to an IO or a
  # scheduler.
  def settle
    finish = now + Slowness.stretch(5)
    loop do
      GC.start
      left = unowned_descriptors
      loops = ObjectSpace.each_object(Heddle::Scheduler).count { |scheduler| !scheduler.closed? }
      kernels = (descriptors - @baseline).count { |_, file| file.start_with?("anon_inode") }
      return if left.empty? && loops <= FORGOTTEN && kernels <= loops * 3
      break @faults << "left open: #{left.map(&:last)}, #{kernels} of the kernel's for #{loops} loops" if now > finish

      Thread.new { Array.new(100) { Object.new } }.join
      sleep(0.05)
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

if $PROGRAM_NAME == __FILE__
  $stdout.sync = true
  Thread.report_on_exception = false
  seconds, seed, operations, ways = ARGV
  seed = seed ? seed.to_i : Random.new_seed % 100_000
  puts "seed #{seed}"
  interrupter = Interrupter.new((seconds || 10).to_f, seed,
    operations&.split(",")&.map(&:to_sym) || Interrupter::OPERATIONS.keys,
    ways&.split(",")&.map(&:to_sym) || Interrupter::WAYS.keys)
  found = !interrupter.run
  INTERRUPTER_SERVERS.stop
  exit!(found ? 1 : 0)
end

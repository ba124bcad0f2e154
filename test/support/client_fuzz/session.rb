# frozen_string_literal: true

require "heddle"
require "heddle/db"
require "heddle/db/mysql"
require "heddle/memcached"
require "heddle/net_http"
require "heddle/timeout"
require_relative "../slowness"
require_relative "servers"
require_relative "clients"
require_relative "actor"
require_relative "chaos"

module ClientFuzz
  # Runs rounds, and checks at the end of each what must hold.
  class Session
    include Heddle::Clock

    ROUND = 2.5 # seconds
    TASKS = 10
    THREADS = 4
    TICK = 0.1
    SPARE_DESCRIPTORS = 25

    attr_reader :clients, :backends, :random, :seed

    def initialize(seed:, seconds:, only:, calm:, restarts:)
      @seed, @seconds, @calm, @restarts = seed, seconds, calm, restarts
      @random = Random.new(seed)
      @only = only
      @faults = []
      @errors = Hash.new(0)
      @done = Hash.new(0)
      @running = {}.compare_by_identity
      @actors = 0
      @pid = Process.pid
      $stdout.sync = true
      backend = Heddle::Scheduler.new.backend
      puts "seed #{seed}, #{seconds} s, backend #{backend}, Ruby #{RUBY_VERSION}, process #{Process.pid}"
    end

    # @return [Boolean]
    def run
      Thread.report_on_exception = false
      trap("USR2") { give_up("asked by a signal") }
      @backends = Backends.new(restarts: @restarts)
      @clients = Clients.new(@backends, gems: @only.nil? || @only.any? { |name| name.start_with?("gem") })
      @operations = Actor.operations(@clients, @only)
      abort("no operation") if @operations.empty?
      @ticker = Thread.new { watch }
      @chaos = Chaos.new(self)
      rounds
      finish
    end

    def rounds
      start = now
      @rounds = 0
      until now - start > @seconds || @faults.any?
        puts "round #{@rounds}, second #{(now - start).round}" if ENV["VERBOSE"]
        round
        @rounds += 1
        measure if @rounds == 3
      end
    end

    def over? = @over

    def restarts? = @restarts

    # Thread#raise and Thread#kill interrupt Sequel's pools in their own code, which then lose a connection, see
    # doc/limits.md. So only the main thread's tasks use these.
    def choose(random)
      main = Thread.current.equal?(Thread.main)
      (main ? @operations : @operations.grep_v(/sequel/)).sample(random: random)
    end

    def next_actor = (@actors += 1)

    # Runs an operation, which must end at most two seconds after its +limit+.
    def operation(actor, name, limit)
      entry = [actor, name, Thread.current, Fiber.current, ((limit + 2.5) / TICK).ceil, now]
      @running[entry] = true
      yield
    ensure
      @running.delete(entry)
      @done[name] += 1
    end

    # Counts an error that an operation ended with.
    def count(error) = @errors[error.class.name] += 1

    def fault(message)
      unless @pid == Process.pid
        $stderr.syswrite("FAULT in a child: #{message}\n")
        exit!(99)
      end
      say "FAULT in round #{@rounds} of seed #{@seed}: #{message}"
      @faults << message
    end

    private

    def round
      @over = false
      chaos = Thread.new { @chaos.run } unless @calm
      threads = Array.new(THREADS) { thread(false) } << thread(true)
      finish = now + ROUND
      Heddle.run do
        tasks = Array.new(TASKS) { task }
        until now > finish || @faults.any?
          sleep(0.01)
          interrupt_tasks(tasks)
          interrupt_threads(threads)
        end
        @over = true
        tasks.each(&:wait)
      end
      @over = true
      threads.each { |thread| end_of(thread) }
      chaos&.join
      @backends.proxies.each(&:pass)
      @clients.verify(self)
    end

    def end_of(thread)
      thread.join
    rescue Actor::Interrupt, Heddle::Error, Timeout::Error
      nil
    end

    def task
      actor = Actor.new(self, next_actor)
      Heddle.spawn(name: actor.to_s) { actor.live }
    end

    # A thread with actors of its own: one, or some tasks in a loop.
    def thread(loop)
      Thread.new do
        next Heddle.run { 4.times { task } } if loop

        Actor.new(self, next_actor).live
      end
    end

    def interrupt_tasks(tasks)
      tasks.each_with_index do |one, index|
        one.cancel if @random.rand < 0.01
        tasks[index] = task if one.ended?
      end
    end

    # A thread with a loop is interrupted once: several interrupts while its run ends let the run abandon its tasks,
    # even inside a shield, and their connections with them.
    def interrupt_threads(threads)
      threads.each_with_index do |one, index|
        if @random.rand < 0.02 && !(one[:interrupted] && index == threads.size - 1)
          one[:interrupted] = true
          (@random.rand < 0.7) ? one.raise(Actor::Interrupt) : one.kill
        end
        next if one.alive?

        end_of(one)
        threads[index] = thread(index == threads.size - 1)
      end
    end

    # Looks for operations that take too long. Counts ticks instead of seconds: on a busy machine ticks come late, too.
    def watch
      until @watched
        sleep(TICK)
        late = @running.keys.find { |entry| (entry[4] -= 1) < 0 }
        give_up("#{late[0]} is late with #{late[1]}, after #{(now - late[5]).round(1)} s", late) if late
      end
    rescue RuntimeError
      retry # keys were added meanwhile
    end

    def finish
      @watched = true
      @ticker.join
      @clients.close
      check_descriptors if @descriptors && @faults.empty?
      @backends.stop
      puts "#{@rounds} rounds, #{@done.values.sum} operations (#{list(@done)})"
      puts "errors: #{list(@errors)}"
      puts @faults.empty? ? "passed" : "failed: SEED=#{@seed}"
      @faults.empty?
    end

    def list(counts) = counts.sort_by { |_, count| -count }.map { |name, count| "#{name} #{count}" }.join(", ")

    def measure
      @descriptors = descriptors
    end

    def descriptors
      3.times { GC.start }
      Dir.children("/proc/self/fd").size
    end

    def check_descriptors
      limit = now + Slowness.stretch(8)
      sleep(0.1) until (left = descriptors - @descriptors) <= SPARE_DESCRIPTORS || now > limit
      fault("#{left} descriptors are left: #{kinds}") if left > SPARE_DESCRIPTORS
    end

    def kinds
      Dir.children("/proc/self/fd").map { |number| kind(number) }.tally
    end

    def kind(number)
      File.readlink("/proc/self/fd/#{number}")[/\A[a-z_]+/]
    rescue Errno::ENOENT
      "closed"
    end

    def give_up(message, late = nil)
      say "FAULT in round #{@rounds} of seed #{@seed}: #{message}"
      say late[3].backtrace&.first(40)&.join("\n    ") if late
      Thread.list.each { |thread| say "#{thread.inspect}\n    #{thread.backtrace&.first(30)&.join("\n    ")}" }
      ObjectSpace.each_object(Heddle::Scheduler) do |scheduler|
        say Heddle.const_get(:Dump).text(scheduler).to_s unless scheduler.closed?
      end
    ensure
      exit!(1)
    end

    def say(*lines) = $stdout.syswrite(lines.join("\n") << "\n")
  end
end

# frozen_string_literal: true

require "digest/sha2" # now, since a trap handler must not load it
require "socket"
require "tempfile"
require "zlib"
require_relative "judge"

module InsightFuzz
  # Tasks that wait in every way that `heddle ps` names, compute, fail, and start others.
  class Load
    include Heddle::Clock

    TASKS = 15
    DEPTH = 3
    NAMES = [nil, "task", "\u00e4\u{1F600}", "\"\\\n\xff\0", "x" * 200].freeze
    private_constant :TASKS, :DEPTH, :NAMES

    # Code that keeps its thread for some milliseconds.
    #
    # @param random [Random]
    def self.stall(random)
      case random.rand(8)
      when 0 then compute(random.rand * 0.06)
      when 1 then Digest::SHA256.hexdigest("x" * random.rand(1..4_000_000))
      when 2 then Zlib.deflate("abc" * random.rand(1..400_000))
      when 3 then ("a" * random.rand(20..80)).match?(/a*a*a*b/)
      when 4 then GC.start
      when 5 then Array.new(random.rand(50_000), &:to_s).sort
      when 6 then lock { compute(0.01) }
      else Marshal.load(Marshal.dump(Array.new(random.rand(20_000), &:to_s)))
      end
    end

    # A child that is made meanwhile has the lock, too: each process has a file of its own, and gives the lock back.
    def self.lock
      File.open("#{ENV.fetch("INSIGHT_FUZZ_FOLDER")}/lock-#{Process.pid}", "w") do |file|
        file.flock(File::LOCK_EX)
        yield
      ensure
        file.flock(File::LOCK_UN)
      end
    end

    def self.compute(seconds)
      limit = Heddle::Clock.now + seconds
      nil while Heddle::Clock.now < limit
    end

    # @param seldom [Array<Proc>] what else a task may do; gets a Random
    def initialize(seldom)
      @seldom = seldom
      @queue, @mutex, @condition = Thread::Queue.new, Thread::Mutex.new, Thread::ConditionVariable.new
      @semaphore = Heddle::Semaphore.new(2)
      @pool = Heddle::ResourcePool.new(size: 2, timeout: 0.3) { Object.new }
    end

    # Runs in a task until that moment.
    #
    # @param random [Random]
    # @param limit [Float]
    def work(random, limit, depth = 0)
      tasks = []
      while now < limit
        step(random, limit, depth, tasks)
        tasks.reject! { |task| task.ended? && claim(task) }
      end
    ensure
      tasks&.each(&:cancel)
      tasks&.each { |task| claim(task) } if random.rand < 0.3
    end

    private

    def step(random, limit, depth, tasks)
      case random.rand(20)
      when 0..3 then tasks << start(random, limit, depth) if tasks.size < TASKS && depth < DEPTH
      when 4 then tasks.sample(random: random)&.cancel
      when 5 then Load.stall(random) if random.rand < 0.3
      when 6 then tasks.shift&.then { |task| claim(task) }
      when 7 then raise Disturbance, "of a task" if depth > 0 && random.rand < 0.15
      when 8, 9 then @seldom.sample(random: random).call(random) if random.rand < 0.5
      else wait(random, tasks)
      end
    end

    def start(random, limit, depth)
      seed = random.rand(1 << 30)
      limit = [now + (random.rand * 0.3), limit].min
      Heddle.spawn(name: NAMES.sample(random: random)) do
        Judge.judging("a task") { work(Random.new(seed), limit, depth + 1) }
      end
    end

    def claim(task)
      Judge.contained("a task's value") { task.value }
      true
    end

    def wait(random, tasks)
      case random.rand(16)
      when 0 then @queue << 1
      when 1 then Heddle.deadline(0.02) { @queue.pop }
      when 2 then @mutex.synchronize { sleep(random.rand * 0.005) }
      when 3 then Heddle.deadline(0.02) { @mutex.synchronize { @condition.wait(@mutex, 0.01) } }
      when 4 then read_pipe(random)
      when 5 then read_silent_socket
      when 6, 7 then sleep(random.rand * 0.02)
      when 8 then tasks.sample(random: random)&.then { |task| Heddle.deadline(0.03) { task.value } }
      when 9 then @semaphore.acquire { sleep(random.rand * 0.005) }
      when 10 then @pool.with { sleep(random.rand * 0.005) }
      when 11 then Heddle.offload { sleep(random.rand * 0.005) }
      when 12 then Thread.new { sleep(0.003) }.join
      when 13 then IO.select([$stdin], nil, nil, 0.004)
      when 14 then Thread.pass
      else Addrinfo.getaddrinfo("localhost", 80)
      end
    rescue Heddle::DeadlineExceeded, Heddle::PoolTimeout
      nil
    end

    def read_pipe(random)
      IO.pipe do |reader, writer|
        delay = random.rand * 0.01
        Heddle.spawn(name: "writes") do
          sleep(delay)
          writer.write("x")
        rescue IOError
          nil # the reader was interrupted
        end
        reader.read(1)
      end
    end

    def read_silent_socket
      one, other = UNIXSocket.pair
      Heddle.deadline(0.02) { one.read(1) }
    ensure
      [one, other].compact.each(&:close)
    end
  end
end

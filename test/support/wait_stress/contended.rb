# frozen_string_literal: true

require "monitor"
require "socket"
require_relative "../scripted_mysql"

class WaitStress
  # What workers wait for. Each worker calls #wait over and over; some may be interrupted there. Once all are to end,
  # #finish is called over and over; it wakes no worker that has missed a wake-up, since Ruby no longer knows that it
  # waits.
  class Contended
    # @param workers [Integer] how many call #wait; the last {THREADS} are plain threads
    # @param over [#call] whether all are to end
    def initialize(workers, over)
      @workers = workers
      @over = over
      prepare
    end

    # A plain thread that is woken, and interrupted before it runs, takes its wake-up with it (doc/limits.md): no
    # deadline may interrupt it where the others wait for that wake-up.
    def interruptible_threads? = true

    def finish = nil

    def close = nil

    private

    def prepare = nil

    def over? = @over.call

    # Lets other tasks run, or threads switch, or continues at once.
    def breathe(random)
      case random.rand(4)
      when 0 then sleep(0)
      when 1 then Thread.pass
      when 2 then sleep(random.rand(0.0005))
      end
    end

    # Ruby before 4.0 loses a wake-up of a thread without a scheduler: where it unlocks the Mutex that a fiber waits
    # for, it checks for interrupts after the call of `unblock`, before the thread counts as sleeping.
    def limit_in_threads
      0.5 unless task? || RUBY_VERSION >= "4.0"
    end

    def task? = Fiber.current_scheduler
  end

  class MutexContended < Contended
    def interruptible_threads? = false

    def prepare = @mutex = Thread::Mutex.new

    def wait(_, random) = @mutex.synchronize { breathe(random) }
  end

  class MutexSleepContended < MutexContended
    def wait(_, random) = @mutex.synchronize { @mutex.sleep(random.rand(0.002)) }
  end

  # A third of the workers wake the others.
  class ConditionContended < Contended
    def interruptible_threads? = false

    def prepare
      @mutex, @condition = Thread::Mutex.new, Thread::ConditionVariable.new
    end

    def wait(index, random)
      return wake(index, random) if index % 3 == 0 && index != 0

      @mutex.synchronize do
        sleep(0) # others wait for the Mutex meanwhile: unlocking it wakes one of them
        @condition.wait(@mutex, limit_in_threads) unless over?
      end
    end

    def finish = @mutex.synchronize { @condition.broadcast }

    private

    def wake(_, random)
      task? ? breathe(random) : 50_000.times {}
      finish
    end
  end

  # Tokens, as a pool counts them.
  class ConditionWithAStateContended < ConditionContended
    def prepare
      super
      @tokens = 3
    end

    def wait(_, random)
      @mutex.synchronize do
        @condition.wait(@mutex, limit_in_threads) until @tokens > 0 || over?
        @tokens -= 1
      end
      begin
        breathe(random)
      ensure
        Heddle.shield(60) { @mutex.synchronize { @tokens += 1 } }
        @condition.signal
      end
    end
  end

  class MonitorContended < Contended
    def interruptible_threads? = false

    def prepare
      @monitor, @tokens = Monitor.new, 3
      @condition = @monitor.new_cond
    end

    def wait(index, random)
      @monitor.synchronize do
        @condition.wait((index % 3 == 0) ? 0.5 : limit_in_threads) until @tokens > 0 || over?
        @tokens -= 1
      end
      begin
        breathe(random)
      ensure
        Heddle.shield(60) { @monitor.synchronize { (@tokens += 1) && @condition.signal } }
      end
    end

    def finish = @monitor.synchronize { @condition.broadcast }
  end

  # A ring: each worker passes what it got to the next.
  class QueueContended < Contended
    def prepare = @queues = Array.new(@workers) { Thread::Queue.new << :start }

    def wait(index, random)
      token = @queues[index].pop
      begin
        breathe(random)
      ensure
        @queues[(index + 1) % @queues.size] << token
      end
    end

    def finish = @queues.each { |queue| queue << :over }
  end

  class SizedQueueContended < Contended
    def interruptible_threads? = false

    def prepare = @queue = Thread::SizedQueue.new(2)

    # The last worker finds a queue that is full, or empty, and releases the others.
    def wait(_, random)
      push = @queue.empty? || (@queue.size < 2 && random.rand(2).zero?)
      push ? @queue << :item : @queue.pop
      breathe(random)
    rescue ClosedQueueError
      nil
    end

    def finish = @queue.close
  end

  class JoinContended < Contended
    def wait(index, random)
      thread = Thread.new { breathe(random) }
      index.even? ? thread.join : thread.join(60)
    end
  end

  # A pool of the run's tasks, to which other threads add work, too.
  class FiberPoolContended < Contended
    def prepare = @pool = Heddle::FiberPool.new(3, queue: 2)

    def wait(index, random)
      case index % 3
      when 0 then @pool.spawn { breathe(random) }.value
      when 1 then @pool.map([1, 2]) { breathe(random) }
      else @pool.spawn { breathe(random) }
      end
    end

    def close = @pool.close
  end

  # In plain threads a pool has its own loop.
  class OwnFiberPoolContended < Contended
    def wait(_, random)
      pool = Heddle::FiberPool.new(2, queue: 1)
      pool.map(1..4) { breathe(random) }
    ensure
      pool.close
    end
  end

  class ActiveRecordContended < Contended
    def interruptible_threads? = false

    def prepare
      require "active_record"
      require "heddle/active_record"
      @isolation_level = ActiveSupport::IsolatedExecutionState.isolation_level
      ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
      ActiveRecord::Base.establish_connection(
        adapter: "sqlite3", database: ":memory:", pool: 3, checkout_timeout: 60, reaping_frequency: nil
      )
      @pool = ActiveRecord::Base.connection_pool
      load_everything
    end

    def wait(_, random)
      return wait_in_a_thread(random) unless task?

      @pool.with_connection { |connection| work(connection, random) }
    end

    def close
      ActiveRecord::Base.remove_connection
      ActiveSupport::IsolatedExecutionState.isolation_level = @isolation_level
    end

    private

    # Ruby's autoload, which is not to be tested here, runs when tasks load a constant that others use.
    def load_everything
      ActiveRecord.eager_load!
      connections = Array.new(3) { @pool.checkout.tap { |connection| connection.select_value("select 1") } }
      connections.each { |connection| @pool.checkin(connection) }
    end

    def wait_in_a_thread(random)
      connection = @pool.checkout(limit_in_threads || 60)
      begin
        work(connection, random)
      ensure
        @pool.checkin(connection)
      end
    rescue ActiveRecord::ConnectionTimeoutError
      raise unless limit_in_threads
    end

    def work(connection, random)
      raise "a wrong answer" unless connection.select_value("select 1") == 1

      breathe(random)
    end
  end

  # Three connections to a server that accepts any login.
  class DatabasePoolContended < Contended
    def prepare
      @server = ScriptedMySQL.new { |peer| peer.welcome && loop { peer.read } }
      @pool = Heddle::DB::Pool.new(@server.url, size: 3, timeout: 60)
    end

    def wait(_, random) = @pool.with { breathe(random) }

    def close
      @pool.close
      @server.close
    end
  end

  # Three connections to a server that has no values.
  class MemcachedContended < Contended
    def prepare
      @server = TCPServer.new("127.0.0.1", 0)
      @serving = []
      @acceptor = Thread.new { loop { @serving << Thread.new(@server.accept) { |socket| serve(socket) } } }
      @cache = Heddle::Memcached.new("127.0.0.1:#{@server.addr[1]}", pool: 3, timeout: 60)
    end

    def wait(_, random)
      raise "a wrong answer" if @cache.get("key")

      breathe(random)
    end

    def close
      @cache.close
      [@acceptor, *@serving].each { |thread| thread.kill.join }
      @server.close
    end

    private

    def serve(socket)
      while (line = socket.gets)
        socket.write({"v" => "VERSION 1.6.18\r\n", "m" => "EN\r\n"}.fetch(line[0]))
      end
    rescue SystemCallError
      nil # interrupted
    ensure
      socket.close
    end
  end

  # All of these in turn, in the order of the worker's random numbers, by tasks and threads that do something else
  # each time.
  class MixedContended < Contended
    PARTS = [MutexContended, MutexSleepContended, ConditionWithAStateContended, MonitorContended, SizedQueueContended,
      JoinContended, FiberPoolContended, OwnFiberPoolContended, ActiveRecordContended, DatabasePoolContended,
      MemcachedContended].freeze

    def interruptible_threads? = false

    def prepare = @parts = PARTS.map { |part| part.new(@workers, @over) }

    def wait(index, random) = @parts.sample(random: random).wait(index, random)

    def finish = @parts.each(&:finish)

    def close = @parts.each(&:close)
  end
end

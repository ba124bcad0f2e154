# frozen_string_literal: true

require_relative "scheduler"
require_relative "integrations"
require_relative "items"

module Heddle
  # Runs blocks on at most `size` fibers at once; what does not fit waits in a bounded queue, and when that is full,
  # {#spawn} makes its caller wait. Fibers are reused.
  #
  # Inside {Heddle.run}, or under a foreign scheduler (async), a pool works on the scheduler of the thread that made it.
  # Elsewhere it has a loop of its own, which runs inside {#map}, {#each}, {#wait} and {#close}, and inside {#spawn} until
  # the block waits for the first time, or while the queue is full; all of that in the thread that made it. Other threads may
  # {#spawn}: what they do runs when that thread is in one of these. When that thread ends, what has not ended is cancelled.
  # A child of fork has the pool without its tasks, as if it had been made there.
  #
  # @example
  #   Heddle::FiberPool.new(20).map(urls) { |url| Net::HTTP.get(URI(url)) }
  class FiberPool
    FAILURES_KEPT = 64
    LOCK_SECONDS = 5
    private_constant :FAILURES_KEPT, :LOCK_SECONDS

    # Registers a block that is asked after each task whether its fiber must not be used again, because a library holds it
    # by its identity. It is called with the fiber, on it, and must not wait.
    #
    # @yieldparam fiber [Fiber]
    # @yieldreturn [Boolean] true when the fiber has to end
    # @return [Proc] the block
    def self.retire_if(&block)
      raise ArgumentError, "Heddle::FiberPool.retire_if needs a block: it is asked whether to retire a fiber" unless block

      Scheduler.retire_if(block)
    end

    # @return [Integer] how many blocks run at once, at most
    attr_reader :size

    # @param size [Integer] how many blocks run at once, at most
    # @param queue [Integer] how many more may wait for their turn before {#spawn} waits
    # @param name [String, nil] for the names of its tasks
    def initialize(size = 50, queue: size, name: nil)
      @size = count("size", size, 1)
      @queue_limit = count("queue", queue, 0)
      @name = name
      @closed = false
      Integrations.load
      begin_here
    end

    # Runs the block on one of the pool's fibers: at once if one is free, else when its turn comes. Waits while the queue is
    # full. Safe to call from other threads (not under a foreign scheduler).
    #
    # @return [Task]
    # @raise [PoolClosed] after {#close}
    # @raise [WrongThread] from another thread under a foreign scheduler; of a pool with a loop of its own whose thread is gone
    def spawn(&block)
      raise ArgumentError, "Heddle::FiberPool#spawn needs a block: the work to do" unless block

      check_process
      check_thread
      attached { submit(false, method(:ended), &block) }
    end

    # Calls the block with each item, on the pool's fibers. The first error cancels the rest and is raised once all have
    # ended.
    #
    # @param items [#each] what it yields as several values (`each_with_index`) is one item, an Array of them
    # @return [Array] the blocks' values, in the order of the items
    # @raise [TaskCancelled] when the task of an item was cancelled: there is no value
    # @raise [PoolClosed] after {#close}
    # @raise [WrongThread] from another thread than a pool's that has a loop of its own
    # @raise [TypeError] for items that have no `each`
    def map(items, &block)
      raise ArgumentError, "Heddle::FiberPool#map needs a block: it is called with each item" unless block

      batch(items, keep: true, &block)
    end

    # As {#map}, without keeping the values: `items` may be endless.
    #
    # @param items [#each]
    # @return [self]
    def each(items, &block)
      raise ArgumentError, "Heddle::FiberPool#each needs a block: it is called with each item" unless block

      batch(items, keep: false, &block)
      self
    end

    # Waits until everything spawned so far has ended. A pool with a loop of its own then raises the first error that
    # nobody asked for; inside a run that is the run's to do.
    #
    # @param timeout [Numeric, nil] seconds
    # @return [self, nil] nil when the timeout is over first
    def wait(timeout = nil)
      check_process
      deadline = timeout && now + timeout
      attached do
        until (seen = @ended.openings) && idle?
          left = deadline && deadline - now
          return nil if left && left <= 0

          check_thread
          @ended.wait(seen, left)
        end
      end
      raise_unclaimed
      self
    end

    # Waits as {#wait}, and takes no more work. Closing twice is harmless.
    #
    # @return [self]
    def close
      check_process
      @closed = true
      @ended.open
      @lock.synchronize { @turns.each_key(&:open) }
      wait
      self
    ensure
      @scheduler.close if @own && idle? && Thread.current == @thread
    end

    # @return [Boolean]
    def closed? = @closed

    # @return [Hash{Symbol => Integer}] `size`; `running` and `queued` now; `spawned` since the start
    def statistics
      check_process
      {size: @size, running: @running.size, queued: @queue.size, spawned: @spawned}
    end

    # @return [String]
    def inspect
      "#<#{self.class}#{" #{@name.inspect}" if @name} #{@running.size} of #{@size} running, #{@queue.size} queued#{", closed" if @closed}>"
    end

    # @api private Takes a block in, once there is room and those who waited before have had theirs.
    #
    # @param wanted [#call, nil] asked after a wait; with false for an answer the block is not taken
    # @param tasks [Hash, nil] gets the task as a key before it can start: an exception may come before it is returned
    # @return [Task, nil]
    def submit(claimed, on_end, wanted = nil, tasks = nil, &block)
      task = place = queued = turn = nil
      @lock.synchronize do
        if @turns.empty? && room?
          task = prepare(claimed, on_end, block)
          task.enlist
          tasks[task] = true if tasks
          # Both at once, with nothing in between where Ruby looks for interrupts: what strikes later gives the place back.
          (@running.size < @size) ? @running[task] = place = true : queued = @queue << task
        else
          raise_closed if @closed
          turn = Gate.new
        end
      end
      if turn
        in_turn(turn) do
          next unless wanted.nil? || wanted.call

          task = prepare(claimed, on_end, block)
          task.enlist
          tasks[task] = true if tasks
          (@running.size < @size) ? @running[task] = place = true : queued = @queue << task
          task
        end
      end
      task.start if place
      task
    ensure
      if place
        leave_place(task) unless task.started?
      elsif !queued
        task&.cancel # struck before it had a place: its run must not wait for it
      end
    end

    # @api private Called on a fiber whose task has ended.
    # @return [Task, nil] what goes on there
    def ended(task)
      keep_failure(task) if @own && task.error && !task.claimed?
      pass_on_place(task)
    end

    private

    # What a pool has from the thread, and the scheduler, that it works on.
    def begin_here
      @thread = Thread.current
      @queue = []
      @running = {}.compare_by_identity # tasks that have a place, with whom they had it from
      @spawned = 0
      @failures = []
      @ended = Gate.new
      @turns = {}.compare_by_identity # Gates of those who wait for room, the longest first
      @promised = {}.compare_by_identity # Gates of those whose turn has come: each has a place
      @withdrawals = Task.withdrawals
      @lock = Thread::Mutex.new # other threads spawn, too
      @scheduler = Fiber.scheduler
      @own = @scheduler.nil?
      @scheduler ||= Scheduler.new
      attached { @scheduler.accept_posts } if @scheduler.is_a?(Scheduler)
      @forks = Heddle.forks
    end

    # A child of fork has none of its parent's tasks: their places would never be free there.
    def check_process
      begin_here unless @forks == Heddle.forks
    end

    # A thread that cannot run the pool's own loop would wait until another one does, which may be never.
    def batch(items, keep:, &block)
      Items.check(items)
      check_process
      if @own && Thread.current != @thread
        raise WrongThread, "#{inspect} has a loop of its own, which runs in #{@thread.inspect} only: make a pool in this " \
          "thread, or hand over single blocks with spawn"
      end

      attached { Batch.new(self, keep: keep).run(items, &block) }
    end

    def start(task)
      task.start
    ensure
      leave_place(task) unless task.started?
    end

    # What keeps a task from its start (no room for another fiber, a loop that has ended, an interrupt) leaves its place to others.
    def leave_place(task)
      successor = pass_on_place(task)
      task.cancel # its run must not wait for it
      start(successor) if successor
    end

    # The task's place is free: for the queued task that is next, which is returned, or for whoever comes. Called again where an
    # interrupt has ended the first call: the second does what is left to do, and returns the same.
    def pass_on_place(task)
      successor = nil
      @lock.synchronize do
        @queue.shift while @queue.first&.ended?
        successor = @queue.first
        if !@running.key?(task)
          successor = successor_of(task)
        elsif successor
          # All at once, with nothing in between where Ruby looks for interrupts.
          @running[@queue.shift] = task
          @running.delete(task)
        else
          @running.delete(task)
        end
        give_turns
      end
      @ended.open if @running.empty?
      successor
    end

    def successor_of(task)
      @running.each { |successor, predecessor| return successor if predecessor.equal?(task) && !successor.started? }
      nil
    end

    # Yields, under the lock, when the turn has come. Whatever ends the wait, its place is not lost to the others: a turn that
    # nobody waits for would keep one for good.
    def in_turn(turn)
      @lock.synchronize do
        raise_closed if @closed
        @turns[turn] = true
        give_turns
      end
      turn.wait(0) while turn.openings.zero?
      @lock.synchronize do
        raise_closed if @closed
        yield.tap { |taken| @promised.delete(turn) if taken }
      end
    ensure
      Heddle.shield(LOCK_SECONDS) { leave(turn) } if @turns.key?(turn) || @promised.key?(turn)
    end

    def leave(turn)
      @lock.synchronize do
        @turns.delete(turn) || @promised.delete(turn)
        give_turns
      end
    end

    # Under the lock, to those who have waited longest: as many turns as there are places. An exception in between would
    # lose a place.
    def give_turns
      return if @turns.empty?

      Thread.handle_interrupt(Object => :never) do
        while !@turns.empty? && room?
          turn, = @turns.shift
          @promised[turn] = true
          turn.open
        end
      end
    end

    # Under the lock. Tasks that were cancelled while they were queued take no room.
    def room?
      return true if @running.size + @queue.size + @promised.size < @size + @queue_limit
      return false if @withdrawals == (withdrawals = Task.withdrawals)

      @withdrawals = withdrawals
      @queue.reject!(&:ended?)
      @running.size + @queue.size + @promised.size < @size + @queue_limit
    end

    # Under the lock.
    def prepare(claimed, on_end, block)
      raise_closed if @closed

      Task.prepare(@scheduler, @name, on_end, claimed, &block).tap { @spawned += 1 } # a cancel while it waits for the lock leaves none
    end

    def raise_closed
      raise PoolClosed, "#{inspect} takes no more work: it was closed"
    end

    def count(what, value, least)
      raise TypeError, "a pool's #{what} is a whole number, not #{value.inspect}" unless value.is_a?(Integer)
      raise ArgumentError, "a pool's #{what} is #{least} or more, not #{value}" if value < least

      value
    end

    # Tasks that were cancelled while they were queued need no room.
    def idle?
      @running.empty? && @queue.all?(&:ended?)
    end

    # Sets the pool's own loop for the time of the block, where it has one and it is not set.
    def attached(&block)
      return yield if !@own || Fiber.scheduler == @scheduler
      return yield if Thread.current != @thread
      raise ThreadError, "#{inspect} has a loop of its own and cannot run it under #{Fiber.scheduler}: make the pool there" if Fiber.scheduler
      return yield if @scheduler.closed?

      @scheduler.attached(&block)
    end

    # Nobody else can run the loop of its own.
    def check_thread
      raise WrongThread, "#{inspect} has a loop of its own, whose thread has ended: make a pool in a thread that lives" if @own && !@thread.alive?
    end

    # One is raised: of very many, the first are enough.
    def keep_failure(task)
      @failures.reject!(&:claimed?) if @failures.size >= FAILURES_KEPT
      @failures << task if @failures.size < FAILURES_KEPT
    end

    def raise_unclaimed
      failed = @failures.find { |task| !task.claimed? }
      @failures.clear
      raise failed.error if failed
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # One call of {FiberPool#map} or {FiberPool#each}.
    #
    # @api private
    class Batch
      GRACE = 15 # seconds for the clean-up of tasks that were cancelled

      def initialize(pool, keep:)
        @pool = pool
        @keep = keep
        @tasks = {}.compare_by_identity
        @values = []
        @failed = nil
        @wanted = -> { !@failed }
        @changed = Gate.new
      end

      def run(items, &block)
        index = -1
        items.to_enum.each_entry do |item|
          break if @failed || !add(index += 1, item, block)
        end
        wait_for_end
        @failed&.value # raises its error

        @values
      ensure
        cancel_all
        Heddle.shield(GRACE) { wait_for_end } unless @tasks.empty?
      end

      private

      def add(index, item, block)
        on_end = ->(task) { ended(task, index) }
        @pool.submit(true, on_end, @wanted, @tasks) { block.call(item) }
      end

      def ended(task, index)
        @tasks.delete(task)
        if task.status == :completed
          @values[index] = task.value if @keep
        elsif !@failed
          @failed = task
          cancel_all
        end
        @changed.open if @tasks.empty?
        @pool.ended(task)
      end

      def wait_for_end
        until (seen = @changed.openings) && @tasks.empty?
          @changed.wait(seen)
        end
      end

      def cancel_all
        @tasks.keys.each do |task|
          task.cancel
          @tasks.delete(task) if task.ended? # was queued: nobody calls back
        end
      end
    end
    private_constant :Batch
  end
end

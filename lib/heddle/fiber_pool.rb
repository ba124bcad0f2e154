# frozen_string_literal: true

require_relative "scheduler"
require_relative "integrations"
require_relative "items"

module Heddle
  # Runs blocks on at most `size` fibers at once. Further blocks wait in a bounded queue; while the queue is full,
  # {#spawn} makes its caller wait. Fibers are reused.
  #
  # Inside {Heddle.run}, or under a foreign scheduler (async), a pool uses the scheduler of the thread that made it.
  # Elsewhere the pool has a loop of its own. That loop runs only in the thread that made the pool, inside {#map},
  # {#each}, {#wait} and {#close}, and inside {#spawn} until the block waits for the first time, or while the queue is
  # full. Other threads may {#spawn}: their blocks run when the pool's thread is in one of these methods. When that
  # thread ends, unfinished tasks are cancelled. In a child of fork the pool has no tasks, as if it had been made there.
  #
  # @example
  #   Heddle::FiberPool.new(20).map(urls) { |url| Net::HTTP.get(URI(url)) }
  class FiberPool
    FAILURES_KEPT = 64
    LOCK_SECONDS = 60 # it is held for microseconds, but perhaps by a thread that gets no processor
    BEGINNING = Thread::Mutex.new # for pools in a child of fork
    private_constant :FAILURES_KEPT, :LOCK_SECONDS, :BEGINNING

    # Registers a block that decides after each task whether its fiber must end instead of being reused, because a
    # library identifies something by that fiber. The block is called on the fiber, and must not wait.
    #
    # @yieldparam fiber [Fiber]
    # @yieldreturn [Boolean] true when the fiber must end
    # @return [Proc] the block
    def self.retire_if(&block)
      unless block
        raise ArgumentError, "Heddle::FiberPool.retire_if needs a block that decides whether to retire a fiber"
      end

      Scheduler.retire_if(block)
    end

    # @return [Integer] the most blocks that run at once
    attr_reader :size

    # @param size [Integer] the most blocks that run at once
    # @param queue [Integer] the most blocks in the queue, before {#spawn} waits
    # @param name [String, nil] the start of its tasks' names
    def initialize(size = 50, queue: size, name: nil)
      @size = count("size", size, 1)
      @queue_limit = count("queue", queue, 0)
      @name = name
      @closed = false
      Integrations.load
      begin_here
    end

    # Runs the block on one of the pool's fibers: at once if a fiber is free, else when its turn comes. Waits while the
    # queue is full. Other threads may call this too, but not under a foreign scheduler.
    #
    # @return [Task]
    # @raise [PoolClosed] after {#close}
    # @raise [WrongThread] from another thread under a foreign scheduler; or when the pool has a loop of its own whose
    #   thread has ended
    def spawn(&block)
      raise ArgumentError, "Heddle::FiberPool#spawn needs a block to run" unless block

      check_process
      check_thread
      attached { submit(false, method(:ended), &block) }
    end

    # Calls the block with each item, on the pool's fibers. The first error cancels the other tasks, and is raised when
    # all have ended.
    #
    # @param items [#each] if `each` yields several values at once (`each_with_index`), their Array is one item
    # @return [Array] the blocks' values, in the order of the items
    # @raise [TaskCancelled] when the task of an item was cancelled, so that the item has no value
    # @raise [PoolClosed] after {#close}
    # @raise [WrongThread] when the pool has a loop of its own, and this is not its thread
    # @raise [TypeError] for items without a method `each`
    def map(items, &block)
      raise ArgumentError, "Heddle::FiberPool#map needs a block to call with each item" unless block

      batch(items, keep: true, &block)
    end

    # Like {#map}, but drops the values: `items` may be endless.
    #
    # @param items [#each]
    # @return [self]
    def each(items, &block)
      raise ArgumentError, "Heddle::FiberPool#each needs a block to call with each item" unless block

      batch(items, keep: false, &block)
      self
    end

    # Waits until all tasks spawned so far have ended. A pool with a loop of its own then raises the first error that no
    # {Task#value} has raised; inside a run, the run raises that error.
    #
    # @param timeout [Numeric, nil] seconds
    # @return [self, nil] nil when the timeout ends first
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

    # Takes no more work, and waits like {#wait}. Closing twice is harmless.
    #
    # @return [self]
    def close
      check_process
      @closed = true
      @ended.open
      Heddle.shield(LOCK_SECONDS) { @lock.synchronize { @turns.each_key(&:open) } }
      wait
      self
    ensure
      @scheduler.close if @own && idle? && Thread.current == @thread
    end

    # @return [Boolean]
    def closed? = @closed

    # @return [Hash{Symbol => Integer}] `size`; `running` and `queued` tasks now; `spawned` tasks in all
    def statistics
      check_process
      {size: @size, running: @running.size, queued: @queue.size, spawned: @spawned}
    end

    # @return [String]
    def inspect
      name = " #{@name.inspect}" if @name
      closed = ", closed" if @closed
      "#<#{self.class}#{name} #{@running.size} of #{@size} running, #{@queue.size} queued#{closed}>"
    end

    # @api private Accepts a block when there is room and earlier waiters have had their turn.
    #
    # @param wanted [#call, nil] called after a wait; if it returns false, the block is not accepted
    # @param tasks [Hash, nil] gets the task as a key before the task can start: an exception may prevent its return
    # @return [Task, nil]
    def submit(claimed, on_end, wanted = nil, tasks = nil, &block)
      task = place = queued = turn = nil
      @lock.synchronize do
        if @turns.empty? && room?
          task = prepare(claimed, on_end, block)
          task.enlist
          tasks[task] = true if tasks
          # One expression, in which Ruby does not check for interrupts. If an exception strikes later, `ensure` frees
          # the place.
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
    # @return [Task, nil] the next task of this fiber
    def ended(task)
      keep_failure(task) if @own && task.error && !task.claimed?
      pass_on_place(task)
    end

    private

    # Sets the state that depends on the pool's thread and scheduler.
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
      @scheduler ||= Loop.make
      attached { @scheduler.accept_posts } if @scheduler.is_a?(Loop)
      @forks = Heddle.forks
    end

    # A child of fork has none of its parent's tasks: their places would never become free in the child.
    def check_process
      return if @forks == Heddle.forks

      # Of several threads of the child, one begins; the lock of the pool itself is part of what begins anew.
      BEGINNING.synchronize { begin_here unless @forks == Heddle.forks }
    end

    # A thread that cannot run the pool's own loop would wait for the pool's thread, perhaps for ever.
    def batch(items, keep:, &block)
      Items.check(items)
      check_process
      if @own && Thread.current != @thread
        raise WrongThread,
          "#{inspect} has a loop of its own, which runs only in #{@thread.inspect}: make a pool in this " \
          "thread, or pass single blocks to spawn"
      end

      attached { Batch.new(self, keep: keep).run(items, &block) }
    end

    def start(task)
      task.start
    ensure
      leave_place(task) unless task.started?
    end

    # Frees the place of a task that cannot start (no room for another fiber, an ended loop, an interrupt).
    def leave_place(task)
      successor = Heddle.shield(LOCK_SECONDS) { pass_on_place(task) }
      task.cancel # its run must not wait for it
      start(successor) if successor
    end

    # Frees the task's place, and gives it to the next queued task, which is returned. May be called again after an
    # interrupt ended the first call: the second call completes the work, and returns the same task.
    def pass_on_place(task)
      successor = nil
      @lock.synchronize do
        @queue.shift while @queue.first&.ended?
        successor = @queue.first
        if !@running.key?(task)
          successor = successor_of(task)
        elsif successor
          # One expression, in which Ruby does not check for interrupts.
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

    # Yields, under the lock, when the turn has come. An exception that ends the wait passes the turn on: an abandoned
    # turn would hold a place for ever.
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

    # Gives a turn for each free place, to the longest waiters first. Call this under the lock. An exception in here
    # would lose a place.
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

    # Call this under the lock. Tasks that were cancelled in the queue take no room.
    def room?
      return true if @running.size + @queue.size + @promised.size < @size + @queue_limit
      return false if @withdrawals == (withdrawals = Task.withdrawals)

      @withdrawals = withdrawals
      @queue.reject!(&:ended?)
      @running.size + @queue.size + @promised.size < @size + @queue_limit
    end

    # Call this under the lock.
    def prepare(claimed, on_end, block)
      raise_closed if @closed

      Task.prepare(@scheduler, @name, on_end, claimed, &block)
        .tap { @spawned += 1 } # a cancel while it waits for the lock leaves none
    end

    def raise_closed
      raise PoolClosed, "#{inspect} is closed and takes no more work"
    end

    def count(what, value, least)
      raise TypeError, "a pool's #{what} must be an Integer, not #{value.inspect}" unless value.is_a?(Integer)
      raise ArgumentError, "a pool's #{what} must be at least #{least}, not #{value}" if value < least

      value
    end

    # Tasks that were cancelled in the queue do not count.
    def idle?
      @running.empty? && @queue.all?(&:ended?)
    end

    # Sets the pool's own loop, if it has one, as the thread's scheduler during the block.
    def attached(&block)
      return yield if !@own || Fiber.scheduler == @scheduler
      return yield if Thread.current != @thread
      if Fiber.scheduler
        raise ThreadError,
          "#{inspect} has a loop of its own, which cannot run under #{Fiber.scheduler}: make the pool in that thread"
      end
      return yield if @scheduler.closed?

      @scheduler.attached(&block)
    end

    # Only the pool's thread can run the pool's own loop.
    def check_thread
      if @own && !@thread.alive?
        raise WrongThread,
          "#{inspect} has a loop of its own, whose thread has ended: make a new pool in a live thread"
      end
    end

    # Only one error is raised, so a few failures are enough to keep.
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
          @tasks.delete(task) if task.ended? # it was queued: no code calls back
        end
      end
    end
    private_constant :Batch
  end
end

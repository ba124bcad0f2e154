# frozen_string_literal: true

require_relative "core/items"
require_relative "run"

module Heddle
  # Runs blocks on at most `size` fibers at once. Further blocks wait in a bounded queue; while the queue is full,
  # {#spawn} makes its caller wait. Fibers are reused.
  #
  # Inside {Heddle.run}, or under another scheduler (async), blocks run as tasks of that run, and other threads may
  # {#spawn} there, too. A pool stays with the first run that uses it until that run's scheduler closes, and then takes
  # the next.
  #
  # Elsewhere nothing could run a task between two calls. There {#map}, {#each}, {#wait} and {#close} are a {Heddle.run}
  # of their own, which ends with the call; {#spawn} only puts the block into the queue, and the next of those calls
  # runs it, as does {Task#value}. A {#spawn} that finds the queue full runs what is in it first. Blocks that no call
  # has run when the program ends are reported.
  #
  # In a child of fork the pool has no tasks, as if it had been made there.
  #
  # @example
  #   Heddle::FiberPool.new(20).map(urls) { |url| Net::HTTP.get(URI(url)) }
  class FiberPool
    LOCK_SECONDS = 60 # it is held for microseconds, but perhaps by a thread that gets no processor
    BEGINNING = Thread::Mutex.new # for pools in a child of fork
    # Ends the run of a {#wait} whose time is over.
    Expired = Class.new(Exception) # rubocop:disable Lint/InheritException -- no block of the user's is to rescue it
    UNBEGUN = {}.compare_by_identity # pools with blocks that wait for a run
    private_constant :LOCK_SECONDS, :BEGINNING, :Expired, :UNBEGUN

    at_exit { UNBEGUN.each_key { |pool| pool.__send__(:report_unbegun) } }

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
      Pools.add(self)
      @size = count("size", size, 1)
      @queue_limit = count("queue", queue, 0)
      @name = name
      @closed = false
      Integrations.load
      begin_here
    end

    # Runs the block on one of the pool's fibers: at once if a fiber is free, else when its turn comes. Waits while the
    # queue is full. Outside of any run the block waits in the queue for the next {#wait}, {#map}, {#each} or {#close}.
    # Other threads may call this too, but not under another scheduler.
    #
    # @return [Task]
    # @raise [PoolClosed] after {#close}
    # @raise [WrongThread] from another thread under another scheduler
    def spawn(&block)
      raise ArgumentError, "Heddle::FiberPool#spawn needs a block to run" unless block

      enter
      until (task = submit(false, method(:ended), &block)) # nil: the queue is full, and nothing runs it
        wait
      end
      UNBEGUN[self] = true unless @scheduler
      task
    end

    # Calls the block with each item, on the pool's fibers. The first error cancels the other tasks, and is raised when
    # all have ended.
    #
    # @param items [#each] if `each` yields several values at once (`each_with_index`), their Array is one item
    # @param errors [Symbol] `:return` makes an item's StandardError its value, and the other items go on
    # @return [Array] the blocks' values, in the order of the items
    # @raise [TaskCancelled] when the task of an item was cancelled, so that the item has no value
    # @raise [PoolClosed] after {#close}
    # @raise [WrongThread] outside of any run, while another thread is in such a call of this pool
    # @raise [TypeError] for items without a method `each`
    def map(items, errors: :raise, &block)
      raise ArgumentError, "Heddle::FiberPool#map needs a block to call with each item" unless block

      block = Items.returning_errors(block) if Items.return_errors?(errors)
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

    # Waits until all tasks spawned so far have ended. If a task failed, and no {Task#value} has raised its error, its
    # run raises the error at its end: outside of any run that is here.
    #
    # @param timeout [Numeric, nil] seconds
    # @return [self, nil] nil when the timeout ends first. Outside of any run the tasks that have not ended are
    #   cancelled then, since nothing would run them.
    def wait(timeout = nil)
      check_process
      deadline = timeout && Clock.now + timeout
      in_run { settle(deadline) } until idle?
      self
    rescue Expired
      nil
    end

    # Takes no more work, and waits like {#wait}. Closing twice is harmless.
    #
    # @return [self]
    def close
      check_process
      @closed = true
      @ended.advance
      @freed.advance # the first who waits leaves, and admits the next
      wait
    end

    # @return [Boolean]
    def closed? = @closed

    # @return [Hash{Symbol => Integer}] `size`; `running` and `queued` tasks now; `spawned` tasks in all
    def statistics
      check_process
      {size: @size, running: @running.size, queued: queued, spawned: @spawned}
    end

    # @return [String]
    def inspect
      return "#<#{self.class} that has not begun>" unless @running # its `new` has raised, and Heddle.dump finds it

      name = " #{@name.inspect}" if @name
      closed = ", closed" if @closed
      "#<#{self.class}#{name} #{@running.size} of #{@size} running, #{queued} queued#{closed}>"
    end

    # @api private
    # @return [Array(Integer, Integer, Integer)] the size, how many blocks run, and how many are queued
    def use
      here = @running && @forks == Heddle.forks
      [@size || 0, here ? @running.size : 0, here ? queued : 0]
    end

    # Accepts a block when there is room and earlier callers have had their turn.
    #
    # @api private
    # @param wanted [#call, nil] if it returns false, the block is not accepted
    # @param tasks [Hash, nil] gets the task as a key before the task can start: an exception may prevent its return
    # @return [Task, nil] nil also when there is no room and no run that could make some
    def submit(claimed, on_end, wanted = nil, tasks = nil, &block)
      task = place = queued = nil
      @admission.acquire do
        until place || queued
          seen = @freed.count
          @lock.synchronize do
            raise_closed if @closed
            return unless wanted.nil? || wanted.call

            if room?
              task = prepare(claimed, on_end, block)
              task.enlist(@scheduler) if @scheduler
              tasks[task] = true if tasks
              # One expression, in which Ruby does not check for interrupts. If an exception arrives later, `ensure`
              # frees the place.
              (@scheduler && @running.size < @size) ? @running[task] = place = true : queued = @queue << task
            elsif !@scheduler
              return
            end
          end
          @freed.wait(seen) unless place || queued
        end
      end
      task.start if place
      task
    ensure
      if place
        leave_place(task) unless task.started?
      elsif !queued
        task&.cancel # interrupted before it had a place: its run must not wait for it
      end
    end

    # Called on a fiber whose task has ended.
    #
    # @api private
    # @return [Task, nil] the next task of this fiber
    def ended(task) = pass_on_place(task)

    # For a caller who waits for a task that is in the queue outside of any run.
    #
    # @api private
    def run_queue(timeout)
      Fiber.scheduler ? enter : wait(timeout)
    end

    private

    # Tasks that were cancelled in the queue stay there until somebody looks for room.
    def queued = @queue.count { |task| !task.ended? }

    # Sets the state that is of this process.
    def begin_here
      @queue = []
      @running = {}.compare_by_identity # tasks that have a place, with whom they had it from
      @spawned = 0
      @ended = EventCount.new
      @admission = Semaphore.new(1) # of the caller that has waited longest, who waits for room
      @freed = EventCount.new
      @withdrawals = Task.withdrawals
      @lock = Thread::Mutex.new # other threads spawn, too
      @scheduler = nil # of the run in which the tasks run, see {#bind}
      @own = false # a call of this pool is that run
      bind(false)
      @forks = Heddle.forks
    end

    # A child of fork has none of its parent's tasks: their places would never become free in the child.
    def check_process
      return if @forks == Heddle.forks

      # Of several threads of the child, one begins; the lock of the pool itself is part of what begins anew.
      BEGINNING.synchronize { begin_here unless @forks == Heddle.forks }
    end

    def batch(items, keep:, &block)
      Items.check(items)
      in_run do
        if @own && Fiber.scheduler != @scheduler
          raise WrongThread, "another thread is in a call of #{inspect}, outside of any run: make a pool in this " \
            "thread, or pass single blocks to spawn"
        end

        Batch.new(self, keep: keep).run(items, &block)
      end
    end

    # Outside of any run, calls the block in a run.
    def in_run
      enter
      return yield if @scheduler

      begin
        Heddle.run do
          enter(own: true)
          yield
        end
      ensure
        Heddle.shield(LOCK_SECONDS) { enter }
        @ended.advance # whoever waits on another thread looks again
      end
    end

    # Takes the run of the calling code, if the pool has none, and starts what is queued.
    def enter(own: false)
      check_process
      return unless @lock.synchronize { bind(own) }

      nil while start_queued
    end

    # Call this under the lock. A pool stays with a scheduler until that has closed.
    #
    # @return [Boolean] true if the pool has a scheduler that it did not have before
    def bind(own)
      return false if @scheduler && !over?

      Thread.handle_interrupt(Object => :never) do
        @running.clear # tasks that refused to end
        @own = own
        if (@scheduler = Fiber.scheduler)
          UNBEGUN.delete(self)
          @scheduler.accept_posts if @scheduler.is_a?(Loop)
          @queue.each { |task| task.enlist(@scheduler) unless task.ended? }
        end
        @freed.advance
        !@scheduler.nil?
      end
    end

    # Says that blocks are lost as the program ends.
    def report_unbegun
      check_process
      count = queued
      return if count.zero?

      warn "heddle: #{count} of the blocks that #{inspect} got outside of any run never ran: call its `wait` or " \
        "`close` after the last `spawn`, or spawn inside Heddle.run"
    end

    def over? = @scheduler.respond_to?(:closed?) && @scheduler.closed?

    # Starts the first task of the queue.
    #
    # @return [Boolean] false if there is none, or no place for it
    def start_queued
      task = nil
      @lock.synchronize do
        @queue.shift while @queue.first&.ended?
        return false unless @running.size < @size && (task = @queue.first)

        @running[@queue.shift] = true # one expression, see {#submit}
      end
      task.start
      true
    ensure
      leave_place(task) if task && @running.key?(task) && !task.started?
    end

    # Waits until no task is left, or the run is over.
    def settle(deadline)
      until (seen = @ended.count) && (idle? || over?)
        left = deadline && deadline - Clock.now
        raise Expired if left && left <= 0

        @ended.wait(seen, left)
      end
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
      end
      @freed.advance
      @ended.advance if @running.empty?
      successor
    end

    def successor_of(task)
      @running.each { |successor, predecessor| return successor if predecessor.equal?(task) && !successor.started? }
      nil
    end

    # Call this under the lock. Tasks that were cancelled in the queue take no room.
    def room?
      return true if @running.size + @queue.size < @size + @queue_limit
      return false if @withdrawals == (withdrawals = Task.withdrawals)

      @withdrawals = withdrawals
      @queue.reject!(&:ended?)
      @running.size + @queue.size < @size + @queue_limit
    end

    # Call this under the lock.
    def prepare(claimed, on_end, block)
      raise_closed if @closed

      Task.prepare(@scheduler || self, @name, on_end, claimed, &block)
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

    # One call of {FiberPool#map} or {FiberPool#each}.
    #
    # @api private
    class Batch
      GRACE = 15 # seconds for the clean-up of tasks that were cancelled
      # Ends the wait for the next item.
      Stopped = Class.new(Exception) # rubocop:disable Lint/InheritException -- no source of items is to rescue it
      private_constant :Stopped

      def initialize(pool, keep:)
        @pool = pool
        @keep = keep
        @tasks = {}.compare_by_identity
        @values = []
        @failed = nil
        @feeder = nil # the task that waits for the next item
        @stopped = Stopped.new("a block failed: no more items are wanted")
        @wanted = -> { !@failed }
        @changed = EventCount.new
      end

      def run(items, &block)
        feed(items, block)
        wait_for_end
        @failed&.value # raises its error

        @values
      ensure
        cancel_all
        Heddle.shield(GRACE) { wait_for_end } unless @tasks.empty?
      end

      private

      def feed(items, block)
        index = -1
        @feeder = Task.current if Fiber.scheduler.is_a?(Loop)
        items.to_enum.each_entry do |item|
          break if @failed || !add(index += 1, item, block) || @failed
        end
      rescue Exception => error # rubocop:disable Lint/RescueException -- a source may have made an error of it
        raise unless @failed && stopped?(error)
      ensure
        @feeder&.withdraw(@stopped)
        @feeder = nil
      end

      def stopped?(error) = !error.nil? && (error.equal?(@stopped) || stopped?(error.cause))

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
          @feeder&.interrupt(@stopped)
        end
        @changed.advance if @tasks.empty?
        @pool.ended(task)
      end

      def wait_for_end
        until (seen = @changed.count) && @tasks.empty?
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

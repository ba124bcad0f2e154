# frozen_string_literal: true

require_relative "../heddle"
require_relative "core/required_gem"
%w[concurrent/errors concurrent/executor/executor_service].each do |path|
  Heddle::RequiredGem.load(path, "Heddle::Executor", "concurrent-ruby, 1.1 or later")
end
require_relative "core/loop_thread"

module Heddle
  # An executor of concurrent-ruby that runs each posted block as a task, on one thread with a loop: for futures,
  # promises, Rails' load_async, and whatever else takes a `Concurrent::ExecutorService`. The thread starts with the
  # first block. It ends when nothing ran for `idletime` seconds, and starts again when it is needed.
  #
  # A block inherits nothing from the caller of {#post}: no deadline, no fiber storage. A block's error is logged as
  # concurrent-ruby's own executors do, by `Concurrent.global_logger`; futures and promises keep it.
  #
  # In a child of fork the executor starts anew: blocks that the parent had accepted run in the parent alone. An
  # executor that was shut down stays so.
  #
  # @example
  #   require "heddle/executor"
  #   IO = Heddle::Executor.new(fibers: 200)
  #   pages = urls.map { |url| Concurrent::Promises.future_on(IO) { Net::HTTP.get(URI(url)) } }
  #   pages.map(&:value!)
  class Executor
    include Concurrent::ExecutorService

    FALLBACK_POLICIES = %i[abort discard caller_runs].freeze
    RESETTING = Thread::Mutex.new # several threads of a child may be the first
    private_constant :RESETTING

    # @return [Integer] the most blocks that run at once
    attr_reader :max_length

    # @return [Integer] the most blocks that wait for a fiber; 0 for any number
    attr_reader :max_queue

    # @return [Boolean] whether a block is refused when no fiber is free
    attr_reader :synchronous

    # @return [Symbol] what {#post} does with a block that the executor does not accept
    attr_reader :fallback_policy

    # @return [String, nil]
    attr_reader :name

    # @return [Numeric] seconds
    attr_reader :idletime

    # @api private
    # @return [Numeric] seconds that blocks have to end after {#kill}
    attr_reader :grace

    # @param fibers [Integer] the most blocks that run at once, on all threads together
    # @param threads [Integer] how many threads run blocks, each with a loop of its own: more than one helps only
    #   blocks that compute without the GVL
    # @param max_queue [Integer] the most blocks that wait for a fiber; 0 for any number
    # @param synchronous [Boolean] no block waits for a fiber: with none free, the block is not accepted
    # @param fallback_policy [Symbol] for a block that is not accepted: `:abort` raises
    #   `Concurrent::RejectedExecutionError`, `:discard` drops the block, `:caller_runs` calls it in {#post}
    # @param name [String, nil] of the threads and tasks
    # @param idletime [Numeric] seconds after which an idle thread ends
    # @param grace [Numeric] seconds that the blocks have to end after {#kill}, before they are interrupted again
    # @raise [TypeError, ArgumentError] for a value that it cannot use
    def initialize(fibers: 100, threads: 1, max_queue: 0, synchronous: false, fallback_policy: :abort, name: nil,
      idletime: 60, grace: 5)
      @max_length = count("fibers", fibers, 1)
      @threads = count("threads", threads, 1)
      @max_queue = count("max_queue", max_queue, 0)
      @synchronous = synchronous ? true : false
      raise ArgumentError, "synchronous: leaves no queue, so that max_queue: must be 0" if synchronous && max_queue > 0
      unless FALLBACK_POLICIES.include?(fallback_policy)
        raise ArgumentError, "fallback_policy: must be one of #{FALLBACK_POLICIES.map(&:inspect).join(", ")}, " \
          "not #{fallback_policy.inspect}"
      end

      @fallback_policy, @name, @idletime, @grace = fallback_policy, name, idletime, grace
      @state = :running
      begin_here
    end

    # Runs the block as a task, or leaves it to the fallback policy. Any thread and any task may call this.
    #
    # @param arguments [Array] for the block
    # @return [Boolean] whether the block was accepted, or called here
    # @raise [Concurrent::RejectedExecutionError] with the policy `:abort`, when the executor is full or shut down
    def post(*arguments, &block)
      raise ArgumentError, "Heddle::Executor#post needs a block to run" unless block

      check_process
      begin
        accepted = @lock.synchronize do
          next false unless @state == :running && room?

          start_worker if @workers.size < @threads && running + @queue.size >= @workers.size
          @queue << [block, arguments]
          @scheduled += 1
          true
        end
      ensure
        # Also behind an exception that arrives after the block was accepted; and again, since it may interrupt
        # meanwhile.
        begin
          wake_workers unless @queue.empty?
        ensure
          wake_workers unless @queue.empty?
        end
      end
      accepted || refuse(block, arguments)
    end

    # Like {#post}, for a block without arguments.
    #
    # @param task [Proc]
    # @return [self]
    def <<(task)
      post(&task)
      self
    end

    # @return [Integer] fibers that are kept while nothing runs: 0
    def min_length = 0

    # @return [Boolean] whether a block may be refused because the queue is full
    def can_overflow? = @synchronous || @max_queue > 0

    # @return [Boolean] false: blocks run at once
    def serialized? = false

    # @return [Boolean] true: like concurrent-ruby's executors, this one does not keep a program from ending
    def auto_terminate? = true

    # @return [Boolean] whether the executor accepts blocks
    def running? = state == :running

    # @return [Boolean] whether the executor accepts no more blocks, and has not ended
    def shuttingdown? = state == :shuttingdown

    # @return [Boolean] whether the executor has ended
    def shutdown? = state == :shutdown

    # Accepts no more blocks. Those that were accepted run to their end.
    #
    # @return [true]
    def shutdown = stop { @workers.each(&:wake) }

    # Accepts no more blocks, drops the queue and cancels the running tasks: {Heddle::Cancellation} is raised where they
    # wait, and their `ensure` blocks run. A block that computes is interrupted when it waits next.
    #
    # @return [true]
    def kill
      stop do
        @queue.clear
        @workers.each(&:kill)
      end
    end

    # Waits until the executor has ended. Ends nothing itself: call {#shutdown} or {#kill} first.
    #
    # @param timeout [Numeric, nil] seconds
    # @return [Boolean] false when the timeout ended first
    def wait_for_termination(timeout = nil)
      deadline = timeout && Clock.now + timeout
      until (seen = @ended.count) && shutdown?
        left = deadline && deadline - Clock.now
        return false if left && left <= 0

        @ended.wait(seen, left)
      end
      true
    end

    # @return [Integer] fibers in use: blocks that run, or will as soon as the thread has its turn
    def length = locked { [running + @queue.size, @max_length].min }

    # @return [Integer] blocks that run
    def active_count = locked { running }

    # @return [Integer] the most blocks that ran at once
    def largest_length = locked { @largest }

    # @return [Integer] blocks that wait for a fiber
    def queue_length = locked { waiting }

    # @return [Integer] how many more blocks may wait for a fiber; -1 for any number
    def remaining_capacity = locked { can_overflow? ? @max_queue - waiting : -1 }

    # @return [Integer] fibers that are free
    def ready_worker_count = locked { [@max_length - running - @queue.size, 0].max }

    # @return [Integer] blocks that were accepted
    def scheduled_task_count = locked { @scheduled }

    # @return [Integer] blocks that returned
    def completed_task_count = locked { @completed + @workers.sum(&:completed) }

    # @return [String]
    def inspect
      name = " #{@name.inspect}" if @name
      "#<#{self.class}#{name} #{state}, #{active_count} of #{@max_length} running, #{queue_length} waiting>"
    end

    alias_method :to_s, :inspect

    # Called by a worker that has room.
    #
    # @api private
    # @return [Array, nil] a block and its arguments, for {#perform}
    def take(worker)
      @lock.synchronize do
        next if (running = self.running) >= @max_length || @queue.empty?

        @largest = running + 1 if running >= @largest
        worker.took(@queue.shift)
      end
    end

    # Takes back what a worker took and could not start.
    #
    # @api private
    def give_back(worker, work)
      @lock.synchronize do
        worker.gave_back
        @queue.unshift(work)
      end
    end

    # @api private
    def attend?(worker) = worker.idle? || queue?

    # Called by a worker that runs nothing: whether its thread is to end. If so, the executor no longer
    # knows the worker.
    #
    # @api private
    def dismiss?(worker, idle)
      @lock.synchronize do
        next false if queue? || (@state == :running && !idle)

        remove(worker)
        true
      end
    end

    # @api private
    def perform((block, arguments))
      block.call(*arguments)
    end

    # @api private
    def failed(error)
      log(error.is_a?(StandardError) ? DEBUG : ERROR, error)
    end

    # @api private
    def short_of_fibers(error)
      log(WARN, error)
    end

    # @api private
    def thread_failed(error)
      log(ERROR, error)
    end

    # Called at the end of a worker's thread, however it ends.
    #
    # @api private
    def thread_ended(worker)
      @lock.synchronize do
        remove(worker)
        start_worker if @state != :shutdown && @workers.size < @threads && !@queue.empty?
      end
    rescue ThreadError
      nil # the process ends, and no thread starts any more
    end

    private

    def queue? = !@queue.empty?

    # Sets the state that depends on the process.
    def begin_here
      @lock = Thread::Mutex.new
      @queue = []
      @workers = []
      @scheduled = @completed = @largest = 0
      @ended = EventCount.new
      @state = :shutdown unless @state == :running
      @forks = Heddle.forks # last: from now on nobody resets it
    end

    # A child of fork has none of the workers.
    def check_process
      return if @forks == Heddle.forks

      RESETTING.synchronize { begin_here unless @forks == Heddle.forks }
    end

    def locked(&block)
      check_process
      @lock.synchronize(&block)
    end

    def state
      check_process
      @state
    end

    # Call this under the lock.
    def running = @workers.sum(&:running)

    # Call this under the lock.
    def waiting = [running + @queue.size - @max_length, 0].max

    # Call this under the lock.
    def room? = !can_overflow? || running + @queue.size < @max_length + @max_queue

    # Call this under the lock. Neither Thread#raise nor Thread#kill may interrupt between the start of the worker's
    # thread and the worker's entry in the list. Nothing in the mask waits.
    def start_worker
      limit = (@max_length.to_f / @threads).ceil
      thread_name = [@name, "heddle executor"].compact.join(" ")
      Thread.handle_interrupt(Object => :never) { @workers << LoopThread.new(self, limit, thread_name) }
    end

    # Call this under the lock.
    def remove(worker)
      return unless @workers.delete(worker)

      @completed += worker.completed
      end_here if @state != :running && @workers.empty? && @queue.empty?
    end

    def end_here
      @state = :shutdown
      @ended.advance
    end

    # The one that comes first takes the block: any of them may compute, however little it runs. A worker that is full
    # takes from the queue when one of its tasks ends.
    def wake_workers
      @workers.dup.each { |worker| worker.wake if worker.room? } # other threads start and end some meanwhile
    end

    def stop
      locked do
        @state = :shuttingdown if @state == :running
        yield
        end_here if @workers.empty? && @queue.empty?
      end
      true
    end

    def refuse(block, arguments)
      case @fallback_policy
      when :abort
        why = (state == :running) ? "is full" : "is shut down"
        raise Concurrent::RejectedExecutionError, "#{inspect} #{why} and accepts no block"
      when :discard
        false
      when :caller_runs
        begin
          block.call(*arguments)
        rescue => error
          log(DEBUG, error)
        end
        true
      end
    end

    def count(what, value, least)
      raise TypeError, "#{what}: must be an Integer, not #{value.inspect}" unless value.is_a?(Integer)
      raise ArgumentError, "#{what}: must be at least #{least}, not #{value}" if value < least

      value
    end
  end
end

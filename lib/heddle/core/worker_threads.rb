# frozen_string_literal: true

require_relative "../metrics"
require_relative "../scheduler"

module Heddle
  # A few Ruby threads that run blocks for callers that wait. Threads start on demand and end after an idle second.
  #
  # Each block runs on its thread's root fiber. A block in a Fiber of its own would crash children that are forked
  # meanwhile: for threads that the child does not have, Ruby forgets the stack only if the thread was on its root
  # fiber. Otherwise Ruby marks memory that is unmapped or, before Ruby 3.3, is another thread's stack.
  #
  # Between two blocks the fiber's locals and instance variables are removed; its storage (Ruby >= 3.2) is a copy of the
  # caller's. If a library identifies something by the thread's fiber ({FiberPool.retire_if}), the thread runs no other
  # block.
  class WorkerThreads
    IDLE_SECONDS = 1
    GRACE_OF_GRACE = 1
    FOR_EVER = 1e9
    RESETTING = Thread::Mutex.new # several threads of a child may be the first
    private_constant :IDLE_SECONDS, :GRACE_OF_GRACE, :FOR_EVER, :RESETTING

    # @return [Integer] the most threads
    attr_reader :limit

    # @param name [String] the threads' name
    # @param limit [Integer] the most threads; further blocks queue
    def initialize(name, limit)
      @name = name
      @limit = limit
      reset
      Metrics::WORKERS[name] = self
    end

    # @param count [Integer] the most threads from now on
    def limit=(count)
      check_process
      @lock.synchronize do
        @limit = count
        @offered.broadcast # the idle ones end
        [@queue.size - @idle, @limit - @threads].min.times { start_thread }
      end
    end

    # @return [Array(Integer, Integer)] how many threads run a block, and how many blocks wait for a thread
    def use
      return [0, 0] unless @forks == Heddle.forks

      [@threads - @idle + @abandoned, @queue.size]
    end

    # Runs the work on one of the threads. The caller, a fiber or a thread, waits until the work ends.
    #
    # When an exception ends the wait, work that has not begun is dropped; work that has begun gets the exception too,
    # and the caller waits for its end, but no longer than +grace+. After that the work is abandoned, and another thread
    # may take the place of its thread.
    #
    # @param work [#call]
    # @param grace [Numeric, nil] seconds; nil to wait for as long as it takes
    # @param interrupt [#call, nil] called with the exception, in the caller, in place of raising it in the work's
    #   thread
    # @return [Object] the work's value
    # @raise [Exception] the work's error
    def run(work, grace: nil, interrupt: nil)
      check_process
      job = Job.new(work, interrupt)
      begin
        submit(job)
        job.wait
        waited = true
      rescue Exception => error # rubocop:disable Lint/RescueException -- to tell the work of it
        raise
      ensure
        give_up(job, error, grace) unless waited
      end
      job.value
    end

    private

    # A child of fork has none of the threads.
    def check_process
      return if @forks == Heddle.forks

      RESETTING.synchronize { reset unless @forks == Heddle.forks }
    end

    def reset
      @lock = Thread::Mutex.new
      @offered = Thread::ConditionVariable.new
      @queue = []
      @threads = @idle = @abandoned = 0
      @forks = Heddle.forks # last: from now on nobody resets it
    end

    def submit(job)
      @lock.synchronize do
        @queue << job
        if @idle >= @queue.size
          @offered.signal
        elsif @threads < @limit
          start_thread
        end
      end
    end

    # Call this under the lock. Neither Thread#raise nor Thread#kill may interrupt between the count of a thread and its
    # start, nor the thread before its first line: its place would be lost. Nothing in the mask may wait: Ruby keeps
    # masks for each thread, not for each fiber. While a task waited in the mask, the mask would hold for the other
    # tasks as well, and for the threads that they start. In a child that one of them forks, it would hold for ever.
    def start_thread
      Thread.handle_interrupt(Object => :never) do
        @threads += 1
        started = Thread.new { serve(Server.new) }
        started.name = @name
        started.report_on_exception = false
      ensure
        @threads -= 1 unless started
      end
    end

    # An exception for a job must be raised within that job alone. A kill, which is no Exception, ends the thread at
    # once.
    def serve(server)
      Thread.handle_interrupt(Exception => :never, Object => :immediate) do
        Heddle.settle_thread
        while next_job(server)
          server.job.perform
          break unless reusable?
        end
      end
    ensure
      replace(server) unless server.left # the thread ends with its job
    end

    def reusable?
      Scheduler.root_fiber_end
    rescue # of a library's FiberPool.retire_if
      false
    end

    # Queued jobs must not wait for a thread that has ended.
    def replace(server)
      @lock.synchronize do
        leave(server)
        @queue.unshift(server.job) if server.job&.waiting? # the thread was killed before
        start_thread if @queue.any? && @threads < @limit
      end
    rescue ThreadError
      nil # the process ends, and no thread starts any more
    end

    # Returns false when the thread must end, and no longer counts the thread: otherwise #submit would not start another
    # thread, although this one takes no more jobs.
    def next_job(server)
      @lock.synchronize do
        wait_for_job if @queue.empty? && stays?(server)
        next true if stays?(server) && (server.job = @queue.shift)

        leave(server)
        false
      end
    end

    # Called again after each wait: the limit may have changed.
    def stays?(server) = !server.job&.abandoned && @threads <= @limit

    def wait_for_job
      @idle += 1
      @offered.wait(@lock, IDLE_SECONDS)
    ensure
      @idle -= 1
    end

    def leave(server)
      server.left = true
      server.job&.abandoned ? @abandoned -= 1 : @threads -= 1
    end

    # In a shield, since a deadline that has passed ends every wait, also one for a lock.
    def give_up(job, error, grace)
      Heddle.shield(grace ? grace + GRACE_OF_GRACE : FOR_EVER) do
        next @lock.synchronize { @queue.delete(job) } if job.withdraw

        job.interrupt(error || Cancellation.new("the caller of an offloaded block has ended"))
        next job.wait_for_end unless grace

        abandon(job, error, grace) unless job.wait(grace)
      end
    end

    # Starts substitutes for abandoned threads, up to as many as the limit. Further abandoned threads keep counting.
    def abandon(job, error, grace)
      @lock.synchronize do
        next if job.ended? || @abandoned >= @limit

        @abandoned += 1
        @threads -= 1
        job.abandoned = true
        start_thread if @queue.any?
      end
      warn "heddle: the caller of an offloaded block gave up (#{error.class}: #{error&.message}); #{grace} s after " \
        "the block was interrupted, it still runs at\n    #{Array(job.backtrace).first(5).join("\n    ")}"
    end

    # What one of the threads has.
    #
    # @!attribute job
    #   @return [Job, nil] the one that it runs, or has run last
    # @!attribute left
    #   @return [Boolean, nil] whether the thread no longer counts
    Server = Struct.new(:job, :left)

    # One block and its outcome.
    class Job
      # @return [Boolean, nil] whether the caller gave up waiting; guarded by the lock of the {WorkerThreads}
      attr_accessor :abandoned

      def initialize(work, interrupt)
        @work = work
        @interrupt = interrupt
        @storage = Fiber.current.storage if Fiber.method_defined?(:storage)
        @state = :waiting
        @lock = Thread::Mutex.new
        @ending = EventCount.new
      end

      # Runs the block on the current thread.
      def perform
        return unless @lock.synchronize { @state == :waiting && (@thread = Thread.current) && (@state = :running) }

        forks = Heddle.forks
        begin
          Scheduler.root_fiber_begin(@storage)
          value = Thread.handle_interrupt(Exception => :immediate) { @work.call }
          completed = true
        rescue Exception => error # rubocop:disable Lint/RescueException -- it is the caller's
          nil
        ensure
          end_child(error) unless Heddle.forks == forks
          error ||= ThreadError.new("the offloaded block ended its thread (Thread.exit, Thread#kill)") unless completed
          finish(value, error)
        end
      end

      # @param timeout [Numeric, nil] seconds
      # @return [Boolean] whether the job has ended
      def wait(timeout = nil)
        deadline = timeout && Clock.now + timeout
        until (seen = @ending.count) && ended?
          left = deadline && deadline - Clock.now
          return false if left && left <= 0

          @ending.wait(seen, left)
        end
        true
      end

      # Returns only when the job has ended. Raises exceptions that arrived during the wait afterwards.
      def wait_for_end
        wait
      ensure
        wait_for_end unless ended?
      end

      # @return [Boolean] whether the job had not begun, and now never will
      def withdraw
        @lock.synchronize { @state == :waiting && (@state = :withdrawn) && true }
      end

      # Passes an exception in the caller on to the work.
      def interrupt(error)
        @lock.synchronize do
          next unless @state == :running
          next @interrupt.call(error) if @interrupt

          error = error.dup
          error.set_backtrace(nil) # it gets the work's own
          @thread.raise(error)
        end
      end

      # @return [Boolean] whether it has not begun
      def waiting? = @state == :waiting

      # @return [Boolean]
      def ended? = @state == :ended

      # @return [Array<String>, nil] its thread's backtrace
      def backtrace = @thread&.backtrace

      # @return [Object]
      # @raise [Exception] the work's error; its backtrace has the work's lines above the caller's
      def value
        return @value unless @error

        @error.set_backtrace([*@error.backtrace, *caller]) unless @error.frozen?
        raise @error
      end

      private

      # Ends a child that the work forked and in which the work returned: the caller exists only in the parent. The
      # child ends as a thread's child would: with the work's error, and after the at_exit blocks.
      def end_child(error)
        Thread.handle_interrupt(Exception => :immediate) { Scheduler.end_child(error) }
      end

      def finish(value, error)
        @lock.synchronize do
          @value, @error, @work = value, error, nil
          @state = :ended
        end
        @ending.advance
        discard_interrupts
      end

      # Drops exceptions that #interrupt raised too late to reach the work.
      def discard_interrupts
        while Thread.pending_interrupt?
          begin
            Thread.handle_interrupt(Exception => :immediate) { Thread.pass }
          rescue Exception # rubocop:disable Lint/RescueException -- it was for a job that has ended
            nil
          end
        end
      end
    end
    private_constant :Server, :Job
  end
  private_constant :WorkerThreads
end

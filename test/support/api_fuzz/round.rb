# frozen_string_literal: true

module ApiFuzz
  # One round: its actors, what they share, and what has to hold once all have ended.
  class Round
    THREADS = 6

    attr_reader :seed, :watch, :port, :mutex, :condition, :monitor, :monitor_condition, :holders

    def initialize(session, seed, watch, port, only)
      @session = session
      @seed = seed
      @watch = watch
      @port = port
      @only = only&.map { |name| :"operation_#{name}" }
      @mutex, @condition = Thread::Mutex.new, Thread::ConditionVariable.new
      @monitor = Monitor.new
      @monitor_condition = @monitor.new_cond
      @holders = {}
      @living = {}.compare_by_identity
      @threads = {}.compare_by_identity
      @errors = {}.compare_by_identity
      @pid = Process.pid
    end

    def run
      actor = Actor.new(self, "main")
      actor.thread = Thread.current
      begin
        actor.operation_run
      rescue Exception => error # rubocop:disable Lint/RescueException -- nothing may leave it
        fault("#{error.class} left the round: #{error.message}\n    #{Array(error.backtrace).first(12).join("\n    ")}")
      end
      finish
    end

    def choose(operations, random) = (@only || operations).sample(random: random)

    def note(actor) = @session.note(actor.to_s)

    def fault(message)
      # rubocop:disable Style/StderrPuts
      return $stderr.puts("FAULT in a child: #{message}") || exit!(99) unless @pid == Process.pid

      # rubocop:enable Style/StderrPuts
      @session.fault(message)
    end

    def entered(actor) = @living[actor] = true

    def ended(actor) = @living.delete(actor)

    def living?(actor) = @living.key?(actor)

    # An error that left an actor may be raised in whatever asks for the actor's value.
    def left(error)
      @errors[error] = true
      left(error.cause) if error.cause
    end

    # A deadline raises, as its block ends, an error with the place of the first wait that failed, which may be a
    # task's; the last one is the cause.
    def left?(error)
      return true if @errors.key?(error)
      return false unless error.is_a?(Heddle::DeadlineExceeded)

      left?(error.cause) || @errors.any? { |known, _| known.backtrace == error.backtrace }
    end

    def somebody(random) = @living.keys.sample(random: random)

    def thread(actor, thread)
      @threads[actor] = thread
      actor.thread ||= thread
    end

    def interrupted_thread(random) = living_threads.sample(random: random)

    def crowded? = living_threads.size >= THREADS

    # Whether all actors are to end.
    def over? = @over || false

    # What a forked child does instead of the round.
    def in_child
      trap("USR2", "DEFAULT")
      yield
    end

    private

    # The actors of those threads. Other threads may be started meanwhile, so this must not iterate over the Hash
    # itself.
    def living_threads = @threads.to_a.filter_map { |actor, thread| actor if thread.alive? }

    # Threads whose starter was interrupted may still run, and start others.
    def finish
      @over = true
      end_thread(*@threads.shift) until @threads.empty?
      fault("#{@living.size} actors are still there: #{@living.keys.first(5).map(&:where).join("; ")}") if @living.any?
      fault("the Mutex is still locked") if @mutex.locked?
      fault("the Monitor is still locked") if @monitor.mon_locked?
      fault("a scheduler is still set") if Fiber.scheduler
    end

    def end_thread(actor, thread)
      actor.mark_interrupted("killed at the end")
      thread.kill
      @watch.wait("the end of #{actor}", actor, -> { !thread.alive? }) { thread.join }
    rescue Exception => error # rubocop:disable Lint/RescueException -- what its thread ended with
      known = [Interrupt, Heddle::Error, Heddle::Cancellation].any? { |kind| kind === error } || left?(error)
      fault("#{error.class} left a thread: #{error.message}") unless known
    end
  end
end

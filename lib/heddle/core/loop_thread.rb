# frozen_string_literal: true

require_relative "../run"

module Heddle
  # A thread with a loop, for work that comes from other threads. Its dispatcher, a task, takes work from the owner for
  # as many tasks as may run; each task does one piece of work.
  #
  # Of its owner it expects `name`, `grace` and `idletime`; `take`, `give_back` and `dismiss?`, for the dispatcher;
  # `perform`, which a task calls with the work, `failed`, for an error of that, and `attend?`, whether the dispatcher
  # is to look for work then; `short_of_fibers`, when work has to wait for a fiber; `thread_failed` and `thread_ended`,
  # at the end.
  #
  # `running` and `completed` are changed in the thread itself; other threads only read them.
  #
  # @api private
  class LoopThread
    # Leaves the dispatcher, so that its run cancels the tasks.
    Killed = Class.new(StandardError)
    # Seconds between two reports that work has to wait for a fiber.
    REPORTS = 60
    private_constant :Killed, :REPORTS

    # @return [Integer] pieces of work that were taken and have not ended
    attr_reader :running

    # @return [Integer] pieces of work that were done without an error
    attr_reader :completed

    # @return [Thread]
    attr_reader :thread

    # @return [Scheduler, nil] nil before the loop runs
    attr_reader :scheduler

    # @param owner [Object] that has the work
    # @param limit [Integer] the most tasks at once
    # @param name [String] of the thread
    # @yieldparam thread [LoopThread] in the thread, once its loop runs
    def initialize(owner, limit, name, &begun)
      @owner = owner
      @limit = limit
      @begun = begun
      @running = @completed = 0
      @changed = EventCount.new
      @thread = Thread.new { live }
      @thread.name = name
      @thread.report_on_exception = false
    end

    def room? = @running < @limit

    def idle? = @running.zero?

    # Lets the dispatcher look for work. Any thread may call this.
    def wake = @changed.advance

    # Cancels the tasks, and ends.
    def kill
      @killed = true
      wake
    end

    # Called by the owner as it hands out work, which is kept until its task begins: the thread may end before.
    #
    # @return [Object] the work
    def took(work)
      @taken = work
      @running += 1
      work
    end

    # Called by the owner.
    def gave_back
      @taken = nil
      @running -= 1
    end

    private

    # A thread inherits the mask of the one that starts it: it can be interrupted, or killed, while it serves. An
    # interrupt before that, or at its end, must not leave the owner with a worker that has no thread.
    def live
      Heddle.background_thread { Heddle.run(grace: @owner.grace) { dispatch } }
    rescue Killed
      nil
    rescue Exception => error # rubocop:disable Lint/RescueException -- nobody else would tell of it
      @owner.thread_failed(error)
    ensure
      give_back
      @owner.thread_ended(self)
    end

    def dispatch
      @scheduler = Fiber.scheduler
      @begun&.call(self)
      idle = false
      loop do
        seen = @changed.count # before the look for work: whoever adds work after the look wakes the dispatcher
        raise Killed if @killed

        start_tasks
        break if idle? && @owner.dismiss?(self, idle)

        @changed.wait(seen, (@owner.idletime if idle?))
        idle = seen == @changed.count # nobody woke it: the time is over
      end
    end

    def start_tasks
      while room? && @owner.take(self)
        begin
          Heddle.spawn(name: @owner.name) { perform }
        rescue LimitReached => error
          report(error)
          # There is no memory for another fiber: the next task takes the fiber of one that ends.
          return if @running > 1

          perform
        ensure
          give_back
        end
      end
    end

    # Work whose task has not begun.
    def give_back
      @owner.give_back(self, @taken) if @taken
    end

    # The next piece of work finds no fiber either.
    def report(error)
      now = Clock.now
      return if @reported && now - @reported < REPORTS

      @reported = now
      @owner.short_of_fibers(error)
    end

    def perform
      work, @taken = @taken, nil
      @owner.perform(work)
      @completed += 1
    rescue Cancellation
      raise
    rescue Exception => error # rubocop:disable Lint/RescueException -- work must not end what others do
      @owner.failed(error)
    ensure
      @running -= 1
      wake if @owner.attend?(self)
    end
  end
  private_constant :LoopThread
end

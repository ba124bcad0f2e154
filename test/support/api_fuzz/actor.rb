# frozen_string_literal: true

require "zlib"
require_relative "operations/tasks"
require_relative "operations/pools"
require_relative "operations/scopes"
require_relative "operations/threads"
require_relative "operations/locks"
require_relative "operations/descriptors"
require_relative "operations/processes"

module ApiFuzz
  # Raised by Thread#raise.
  class Interrupt < StandardError
    # @return [Actor] the actor of the thread that was interrupted
    attr_reader :target

    def initialize(target)
      @target = target
      super("for the thread of #{target}")
    end
  end

  # Raised by Timeout.timeout.
  class LimitPassed < StandardError
    attr_reader :scope

    def initialize(scope)
      @scope = scope
      super("of scope #{scope}")
    end
  end

  # A task or a thread that runs a few operations. Its name and the round's seed choose them.
  class Actor
    include Operations::Tasks
    include Heddle::Clock
    include Operations::Pools
    include Operations::Scopes
    include Operations::Threads
    include Operations::Locks
    include Operations::Descriptors
    include Operations::Processes

    OPERATIONS = instance_methods.grep(/\Aoperation_/).sort.freeze
    DEEPEST = 4
    STEPS = [10, 5, 3, 2].freeze
    # Errors that an operation may see because another actor closed, interrupted or ended the object that it uses.
    EXPECTED = [IOError, Errno::EPIPE, Errno::ECONNRESET, Errno::EBADF, ClosedQueueError].freeze

    attr_reader :name, :round, :owner, :token, :lives, :doing
    attr_accessor :task, :thread, :fiber, :way

    # @param owner [Actor, nil] the actor of its thread; nil for an actor that is itself a thread's
    def initialize(round, name, parent: nil, owner: nil)
      @round = round
      @name = name
      @parent = parent
      @owner = owner || self
      @random = Random.new(Zlib.crc32("#{round.seed}/#{name}"))
      @depth = parent ? parent.depth + 1 : 0
      @scopes = []
      @inherited = parent&.bound? || false
      @children = 0
      @token = Object.new
      @lives = 0
    end

    # Runs the actor's operations, or the block. Records the error that leaves it: code that waits for a task, a run
    # or a thread may get that error.
    def live(&block)
      @lives += 1
      @fiber = Fiber.current
      round.entered(self)
      return assisting(&block) if block

      steps(1 + @random.rand(STEPS.fetch(@depth, 1)))
      @token
    rescue Exception => error # rubocop:disable Lint/RescueException -- to judge it
      judge(error)
      round.left(error)
      raise
    ensure
      round.ended(self)
    end

    def mark_cancelled = @cancelled = true

    def mark_interrupted(how) = (@interrupts ||= []) << how

    def interrupted? = @interrupts&.any? || false

    def interrupts = @interrupts&.join("+")

    # Whether a cancel may reach the actor: one of its own, or of a run around it that somebody ended.
    def disturbed?
      @cancelled || @inherited || owner.ends_others? || round.over? || @scopes.any? || @parent&.disturbed? || false
    end

    # Whether the end of its thread cancels the thread's other actors.
    def ends_others? = interrupted? || @way == :thread_with_pool

    # Whether a deadline may be in force.
    def bound? = @scopes.any? || @inherited

    # Timeout.timeout around a run interrupts the thread by Thread#raise: Ruby raises it in a task that computes, or
    # that is in a blocking fiber (an Enumerator's on Ruby 3.1), instead of in the run's caller.
    def limited?(scope)
      @scopes.include?(scope) || (!owner.equal?(self) && @parent.limited?(scope))
    end

    def to_s = "#{@name} (#{[@doing, owner.way, owner.interrupts, ("cancelled" if @cancelled)].compact.join(", ")})"

    def where = "#{self} at #{@task.inspect} #{@fiber.inspect}#{places(@fiber&.backtrace)}"

    protected

    attr_reader :depth

    private

    def steps(count)
      count.times { step }
    end

    def assisting
      yield
    rescue *EXPECTED
      nil
    end

    def step
      @doing = round.choose(OPERATIONS, @random)
      round.note(self)
      send(@doing)
    rescue *EXPECTED
      nil
    end

    def judge(error)
      round.fault("#{self} got #{error.class}: #{error.message}#{places(error.backtrace)}") unless allowed?(error)
    end

    def allowed?(error)
      return true if round.left?(error)

      case error
      when Interrupt then error.target.equal?(owner)
      when LimitPassed then limited?(error.scope)
      when Heddle::DeadlineExceeded then bound?
      when Heddle::Cancellation then disturbed?
      when Heddle::SchedulerClosed then owner.interrupted?
      else false
      end
    end

    def expect(condition, what)
      round.fault("#{self}: #{what}#{places(caller)}") unless condition
    end

    def places(backtrace) = Array(backtrace).first(12).map { |place| "\n    #{place}" }.join

    # Tells the watch what would end the wait in the block.
    def waiting(what, cause, &block)
      round.watch.wait(what, self, cause, &block)
    end

    def child(owner: self.owner)
      Actor.new(round, "#{@name}.#{@children += 1}", parent: self, owner: owner)
    end

    # A task that only this operation uses.
    def assist(&block)
      actor = child
      actor.task = Heddle.spawn(name: actor.name) { actor.live(&block) }
    end

    def deep? = @depth >= DEEPEST

    def chance(probability) = @random.rand < probability

    def roll(count) = @random.rand(count)

    def moment = @random.rand * 0.005

    def task? = Fiber.current_scheduler
  end
end

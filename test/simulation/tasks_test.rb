# frozen_string_literal: true

require "test_helper"
require "support/simulated"

runs_on rubies: :ends

# Random trees of tasks, deadlines, shields, clean-up and joins, among cancels. Beside each task stands an account of
# what binds it; each wait has to end exactly when that account says, and with what it says.
class SimulatedTasksTest < Minitest::Test
  include Simulated

  TOLERANCE = 10_000 # nanoseconds
  NEVER = Float::INFINITY

  Scope = Struct.new(:kind, :seconds, :at, :failures, :unsure, keyword_init: true)

  # What is known of a task.
  class Account
    attr_reader :scopes
    attr_accessor :task, :asked, :pending, :ended_at, :left

    def initialize(inherited)
      @scopes = inherited ? [inherited] : []
    end

    # Those that bind, the innermost first: nothing outside of a shield does.
    def binding
      innermost_first = @scopes.reverse
      innermost_first.first((innermost_first.index { |scope| scope.kind == :shield } || @scopes.size) + 1)
    end

    def shielded? = @scopes.any? { |scope| scope.kind == :shield }

    # When a wait that began at this moment is interrupted, by what.
    def interrupts(since)
      found = binding.map { |scope| [[scope.at, since].max, :deadline] }
      found << [[pending, since].max, :cancel] if pending && !shielded?
      found
    end

    # @return [Scope, nil] what a task inherits that is started now
    def bequest
      earliest = binding.min_by(&:at)
      earliest && Scope.new(kind: :inherited, seconds: earliest.seconds, at: earliest.at, failures: 0)
    end
  end

  # One world with its tasks.
  class Forest
    attr_reader :wrong, :met

    def initialize(world)
      @world = world
      @accounts, @ensures, @wrong = [], [], []
      @met = Hash.new(0)
      @left = 150 # steps
    end

    def grow
      Heddle.run do
        account = Account.new(nil)
        Array.new(3) { attempt(account) { start(account, 0) } }
      end
      complain("a task is left") unless @accounts.all?(&:ended_at)
      complain("an ensure block ran #{@ensures.inspect} times") unless @ensures.all?([1])
    end

    private

    def now = Heddle::Simulation::Core.now

    def complain(what) = @wrong << "at #{@world.now}: #{what}"

    def nanoseconds(seconds) = (seconds * 1e9).round

    def attempt(account)
      yield
    rescue Heddle::DeadlineExceeded, Heddle::TaskCancelled
      nil
    end

    # Calls the block, which waits, and holds its end beside the account. `natural` is called afterwards: when the wait
    # would have ended by itself.
    def waiting(account, what, natural)
      since = now
      met = :itself
      begin
        value = yield
      rescue Heddle::Cancellation => error
        met = :cancel
      rescue Heddle::DeadlineExceeded => error
        met = :deadline
      end
      judge(account, what, met, error, since, [*account.interrupts(since), [natural.call, :itself]])
      note(account, met, error)
      raise error if error

      value
    end

    def judge(account, what, met, error, since, ends)
      @met[met] += 1
      due = ends.map(&:first).min
      possible = ends.select { |at, _| at <= due + TOLERANCE }.map(&:last)
      complain("#{what} that began at #{since} ended at #{now}, and was due at #{due}") if (now - due).abs > TOLERANCE
      complain("#{what} was ended by #{met} #{error}, and not by #{possible}") unless possible.include?(met)
    end

    def note(account, met, error)
      account.pending = nil if met == :cancel
      return unless met == :deadline

      scope = account.binding.reverse.find { |one| one.at <= now + TOLERANCE } or return
      scope.failures += 1
      words = "#{format("%g", scope.seconds)} s"
      complain("#{error.message}, and not #{words}") unless scope.unsure || error.message.include?(words)
    end

    # ---- steps

    def start(parent, depth, &block)
      account = Account.new(parent.bequest)
      block ||= ->(_) { steps(account, depth + 1) }
      account.task = spawned(parent) { live(account, block) }
      watch(account, parent)
      account
    end

    # Who was cancelled starts no task any more.
    def spawned(parent, &block)
      cancelled = parent.pending && !parent.shielded?
      task = Heddle.spawn(&block)
      complain("a cancelled task has started another one") if cancelled
      task
    rescue Heddle::Cancellation
      complain("a start was cancelled, but nobody asked for that") unless cancelled
      parent.pending = nil
      raise
    end

    def live(account, block)
      @accounts << account
      block.call(account)
      account.left = (account.scopes.any? { |scope| scope.failures > 0 }) ? :failed : :completed
      account.left = nil if account.scopes.any?(&:unsure)
    rescue Heddle::Cancellation
      account.left = :cancelled
      raise
    rescue Heddle::DeadlineExceeded, Heddle::TaskCancelled
      account.left = account.asked ? nil : :failed # a library's error of a cancel counts as the cancel
      raise
    ensure
      account.ended_at = now
    end

    # The parent gets the error of a task that its own deadline has ended: that counts as a failed wait of its own.
    def take(account, parent)
      account.task.value
    rescue Heddle::DeadlineExceeded
      parent.binding.each { |scope| scope.unsure = true if scope.at <= now + TOLERANCE }
    rescue Heddle::TaskCancelled
      nil
    end

    # Somebody waits for each task, who is bound by nothing.
    def watch(account, parent)
      take(account, parent) if account.task.ended?
      since = now
      @world.start do
        account.task.wait
        late = now != account.ended_at && now != since
        complain("a task ended at #{account.ended_at}, and its waiter at #{now}") if late
        left = account.left || account.task.status
        complain("a task is #{account.task.status}, and not #{left}") if account.task.status != left
        account.task.value
      rescue Heddle::DeadlineExceeded, Heddle::TaskCancelled
        nil
      end
    end

    STEPS = %i[nap nap limit limit shield clean_up child join join cancel cancel first promise map rescued].freeze

    def steps(account, depth)
      @world.draw(1..4).times do
        break if (@left -= 1).negative?

        step = (depth > 6) ? :nap : STEPS.sample(random: @world.random)
        __send__(step, account, depth)
      end
    end

    def nap(account, _depth, seconds = time(0.001..2.0))
      ends = now + nanoseconds(seconds)
      waiting(account, "a sleep of #{seconds}", -> { ends }) { sleep(seconds) }
    end

    def limit(account, depth, &block) = scoped(account, depth, :deadline, time(0.01..4.0), &block)

    def shield(account, depth) = scoped(account, depth, :shield, time(0.01..4.0))

    # With every other seed much happens at once. Else all digits of a span are in an error's message.
    def time(range) = [@world.draw(range).round(@world.seed.even? ? 1 : 5), 0.001].max

    def scoped(account, depth, kind, seconds)
      scope = Scope.new(kind: kind, seconds: seconds, at: now + nanoseconds(seconds), failures: 0)
      rescued = @world.draw < 0.7
      Heddle.public_send(kind, seconds) do
        account.scopes.push(scope)
        block_given? ? yield : steps(account, depth + 1)
      ensure
        account.scopes.pop
      end
      complain("the block of #{scope} returned") if scope.failures > 0 && !scope.unsure
    rescue Heddle::DeadlineExceeded
      raise unless rescued
    end

    def rescued(account, depth) = attempt(account) { steps(account, depth + 1) }

    def clean_up(account, depth)
      ran = [0]
      @ensures << ran
      begin
        steps(account, depth + 1)
      ensure
        ran[0] += 1
        case @world.draw(0..2)
        when 0 then nap(account, depth, 0.1)
        when 1 then scoped(account, depth, :shield, 0.5) { nap(account, depth, @world.draw(0.1..0.8)) }
        end
      end
    end

    def child(account, depth) = start(account, depth)

    def join(account, _depth)
      other = @accounts.select { |one| one.task && !one.equal?(account) }.sample(random: @world.random) or return
      return if other.ended_at

      limit = time(0.01..3.0)
      ends = now + nanoseconds(limit)
      waiting(account, "a join", -> { [ends, other.ended_at || NEVER].min }) { other.task.wait(limit) }
    end

    def cancel(account, _depth)
      other = @accounts.select { |one| one.task && !one.equal?(account) }.sample(random: @world.random) or return
      unless other.ended_at || other.asked
        other.asked = true
        other.pending = now
      end
      other.task.cancel
    end

    # The first of several, whereupon the others are cancelled.
    def first(account, depth)
      ended = Thread::Queue.new
      racers = Array.new(@world.draw(2..4)) do
        start(account, depth) do |racer|
          nap(racer, depth)
        ensure
          ended << racer
        end
      end
      unless racers.any?(&:ended_at)
        waiting(account, "the first of several", -> { racers.map { |one| one.ended_at || NEVER }.min }) { ended.pop }
      end
    ensure
      racers&.each do |racer|
        next if racer.ended_at || racer.asked

        racer.asked = true
        racer.pending = now
        racer.task.cancel
      end
    end

    # A value that another task has at some time, or never.
    def promise(account, depth)
      promise, kept_at = Thread::Queue.new, NEVER
      start(account, depth) do |maker|
        nap(maker, depth)
        kept_at = now
        promise << true
      end
      limit(account, depth) do
        waiting(account, "a promise", -> { kept_at }) { promise.pop } if promise.empty?
      end
    end

    def map(account, _depth)
      size = @world.draw(1..3)
      spans = Array.new(@world.draw(1..6)) { time(0.01..1.0) }
      free = Array.new(size, now)
      spans.each { |span| free[free.index(free.min)] += nanoseconds(span) }
      account.scopes.each { |scope| scope.unsure = true } # the tasks inherit the deadline, and fail at its end, too
      pool = Heddle::FiberPool.new(size, queue: 2)
      live = 0
      waiting(account, "a map", -> { free.max }) do
        pool.map(spans) do |span|
          live += 1
          sleep(span)
        ensure
          live -= 1
        end
      end
    ensure
      complain("#{live} tasks of a map are left") if live > 0
    end
  end
  private_constant :Scope, :Account, :Forest

  def setup
    Thread.current.report_on_exception = false # many tasks fail, some of them before anybody can wait for them
  end

  def teardown
    Thread.current.report_on_exception = true
  end

  def test_each_wait_ends_when_it_is_due
    met = Hash.new(0)
    simulate(200) do |world|
      forest = Forest.new(world)
      forest.grow
      assert_empty forest.wrong
      met.update(forest.met) { |_, before, more| before + more }
    end
    assert_operator met.values_at(:itself, :cancel, :deadline).min, :>, 30, met.to_s
  end

  # A run ends with the last of its tasks. They are cancelled when its own block fails, and when its caller is cancelled
  # or out of time; what they do behind a shield is done to its end.
  def test_a_run_ends_with_its_tasks
    outcomes = Hash.new(0)
    simulate(200) do |world|
      tasks = Array.new(4) { |number| Heddle.spawn { Heddle.run { one_run(world, number, outcomes) } } }
      tasks.each(&:value)
    end
    assert_equal %i[block cancelled done late other], outcomes.keys.sort, outcomes.to_s
  end

  # A task of a run.
  Part = Struct.new(:ends, :cleans, :ended_at)
  private_constant :Part

  def one_run(world, number, outcomes)
    parts = []
    stop = NEVER
    block_fails, other_fails = world.draw < 0.3, world.draw < 0.3
    limit = span(world, 0.1..5.0) if world.draw < 0.4
    stop = now + (limit * 1e9).round if limit
    task = Heddle.spawn do
      Heddle.deadline(limit) do
        Heddle.run(grace: span(world, 0.1..5.0)) do
          world.draw(0..4).times { Heddle.spawn { part(world, parts, other_fails && parts.empty?) } }
          part(world, parts, false)
          stop = [stop, now].min if block_fails
          raise "block" if block_fails
        end
      end
    ensure
      judge(parts, stop)
    end
    if world.draw < 0.5
      sleep(span(world, 0.0..4.0))
      stop = [stop, now].min unless task.ended?
      task.cancel
    end
    outcomes[outcome(task)] += 1
  end

  def now = Heddle::Simulation::Core.now

  def outcome(task)
    task.value
    :done
  rescue Heddle::TaskCancelled
    :cancelled
  rescue Heddle::DeadlineExceeded
    :late
  rescue RuntimeError => error
    error.message.to_sym
  end

  def part(world, parts, fails)
    seconds, clean_up = span(world, 0.1..3.0), span(world, 0.1..1.0)
    parts << (part = Part.new(now + (seconds * 1e9).round, (clean_up * 1e9).round))
    begin
      sleep(seconds)
    ensure
      Heddle.shield(2) { sleep(clean_up) }
      part.ended_at = now
    end
    raise "other" if fails
  end

  def judge(parts, stop)
    parts.each do |part|
      refute_nil part.ended_at, "a task is left"
      assert_in_delta [part.ends, stop].min + part.cleans, part.ended_at, TOLERANCE
    end
    assert_in_delta parts.map(&:ended_at).max, now, TOLERANCE
  end
end

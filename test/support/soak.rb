# frozen_string_literal: true

require "heddle"
require "monitor"
require "socket"
require "timeout"

# Runs a thousand tasks at once, each waiting for something, among random cancels, timeouts, closes and raises. After
# the warm-up, memory, descriptors, fibers and timers must not grow, and every task must be accounted for.
#
#   ruby -Ilib test/support/soak.rb SECONDS SEED
class Soak
  include Heddle::Clock

  TASKS = 1000
  # Errors that may leave a task that was interrupted.
  EXPECTED = [IOError, Errno::EPIPE, Errno::ECONNRESET, Errno::EBADF, Timeout::Error, ClosedQueueError,
    FloatDomainError].freeze

  Sample = Struct.new(:second, :rss, :descriptors, :fibers, :timers, :tasks, :started)

  def initialize(seconds, seed)
    @seconds = seconds
    @random = Random.new(seed)
    @jobs = private_methods(false).grep(/\Ajob_/)
    @ended = Hash.new(0)
    @unexpected = []
    @samples = []
    @started = 0
    @mutex = Thread::Mutex.new
    @monitor = Monitor.new
    @fibers = {}.compare_by_identity
    puts "seed #{seed}, backend #{Heddle::Scheduler.new.backend}, Ruby #{RUBY_VERSION}, #{seconds} s"
  end

  def run
    Thread.current.report_on_exception = false
    @start = now
    Heddle.run do
      tasks = []
      until now - @start > @seconds
        tasks << start while tasks.size < TASKS
        interrupt(tasks)
        sleep(0.002)
        tasks.reject! { |task| task.ended? && account(task) }
        sample if now - @start > @samples.size * 5
      end
      tasks.each(&:cancel)
      tasks.each do |task|
        task.wait(10) ||
          abort("a task does not end:\n#{task.inspect} #{task.waits_for}\n#{task.backtrace&.first(10)&.join("\n")}")
      end
      tasks.each { |task| account(task) }
    end
    verdict
  end

  private

  def start
    @started += 1
    job = @jobs.sample(random: @random)
    job = @jobs.first if job == :job_child && @random.rand > 0.02
    Heddle.spawn(name: job.to_s) do
      @fibers[Heddle::Task.current] = Fiber.current
      send(job)
    end
  end

  # A few of them at each turn.
  def interrupt(tasks)
    tasks.sample(100, random: @random).each do |task|
      next if task.ended?

      case @random.rand(4)
      when 0, 1 then task.cancel
      when 2 then @fibers[task]&.raise(IOError, "interrupted")
      else Thread.new { task.cancel }
      end
    rescue FiberError
      nil # it had ended, or not started
    end
  end

  def account(task)
    @fibers.delete(task)
    @ended[task.status] += 1
    task.value
    true
  rescue Heddle::TaskCancelled, *EXPECTED
    true
  rescue => error
    @unexpected << error
    true
  end

  def sample
    3.times { GC.start }
    fibers = ObjectSpace.each_object(Fiber).count(&:alive?)
    rss = File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1].to_i
    timers, tasks = Fiber.scheduler.statistics.values_at(:timers, :tasks)
    @samples << Sample.new((now - @start).round, rss, Dir.children("/proc/self/fd").size, fibers, timers, tasks,
      @started)
    puts @samples.last.to_h.map { |key, value| "#{key} #{value}" }.join("  ")
  end

  def verdict
    faults = []
    faults << "#{@started} tasks were started, #{@ended.values.sum} ended" unless @started == @ended.values.sum
    @unexpected.group_by { |error| [error.class, error.message] }.each do |key, all|
      faults << "#{all.size} times #{key.join(": ")}\n  #{all.first.backtrace&.first(5)&.join("\n  ")}"
    end
    half = @samples.drop(@samples.size / 3)
    before, after = half.first(half.size / 2), half.last(half.size / 2)
    # Memory grows by some MiB once in a while; a leak grows every few seconds.
    {rss: [1.15, 10_240], descriptors: [1.25, 50], fibers: [1.25, 50]}.each do |what, (factor, step)|
      next if before.empty?

      was, is = [before, after].map { |samples| samples.sum(&what) / samples.size }
      faults << "#{what} grew from #{was} to #{is}" if is > was * factor + step
    end
    # How many tasks run at once depends on the machine's speed, by a factor of two; how many timers each has hardly
    # does.
    was, is = [before, after].map { |samples| samples.sum(&:timers).fdiv(samples.sum(&:tasks)).round(2) }
    faults << "timers of a task grew from #{was} to #{is}" if is > was * 1.5
    puts @ended.inspect
    puts faults.empty? ? "passed" : faults
    faults.empty?
  end

  # ---- what tasks do

  # As long as starting some hundreds of other tasks takes.
  def a_while = @random.rand * 2

  def job_sleep = sleep(a_while)

  def job_echo
    helpers = []
    pair = UNIXSocket.pair
    # Nobody learns of its error when a second interrupt hits the clean-up.
    help(helpers) do
      quietly { pair[1].write(pair[1].readpartial(1000)) while true } # rubocop:disable Style/InfiniteLoop
    end
    10.times do |index|
      pair[0].write("line #{index}\n")
      raise "wrong echo" unless pair[0].gets == "line #{index}\n"

      sleep(a_while / 10)
    end
  ensure
    pair&.each(&:close)
    dismiss(helpers)
  end

  def job_closed_under
    pair = UNIXSocket.pair
    Heddle.spawn { sleep(a_while) && pair[0].close }
    pair[0].read(1)
  ensure
    pair&.each(&:close)
  end

  def job_timeout
    Timeout.timeout(a_while) { Timeout.timeout(5) { sleep } }
  end

  def job_lock
    @mutex.synchronize { sleep(0) }
    @monitor.synchronize { sleep(0) }
  end

  def job_condition
    mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
    mutex.synchronize do
      condition.wait(mutex, a_while)
      raise "not owned" unless mutex.owned?
    end
  end

  def job_queue
    helpers = []
    queue = Thread::SizedQueue.new(1)
    reader = help(helpers) { Array.new(5) { queue.pop } }
    5.times { |index| queue << index }
    raise "out of order" unless reader.value == [0, 1, 2, 3, 4]
  ensure
    dismiss(helpers)
  end

  def job_nested_fiber
    Fiber.new(blocking: false) { Fiber.new(blocking: false) { sleep(a_while) }.resume }.resume
  end

  def job_select
    reader, writer = IO.pipe
    Heddle.spawn { quietly { sleep(a_while) && writer.write("x") } }
    IO.select([reader], nil, nil, 1)
  ensure
    [reader, writer].compact.each(&:close)
  end

  def job_failure
    sleep(a_while)
    raise IOError, "on purpose"
  end

  def job_nested_run
    Heddle.run { 3.times { Heddle.spawn { sleep(a_while) } } }
  end

  def job_pool
    Heddle::FiberPool.new(2).map(1..5) { |n| sleep(a_while / 2) && n }
  end

  def job_thread
    Thread.new { sleep(0.01) }.join
  end

  def job_child
    pid = Process.spawn("exit 0")
    Process.wait(pid)
    pid = nil
  ensure
    Process.detach(pid) if pid
  end

  # A task that works for the caller. The caller may be interrupted before it knows the task, so the task adds itself to
  # the list.
  def help(helpers)
    Heddle.spawn do
      helpers << Heddle::Task.current
      yield
    end
  end

  def dismiss(helpers)
    helpers&.each { |helper| quietly { helper.cancel.value } }
  end

  def quietly
    yield
  rescue Heddle::TaskCancelled, *EXPECTED
    nil
  end
end

exit Soak.new(Float(ARGV.fetch(0, 120)), Integer(ARGV.fetch(1, 1))).run

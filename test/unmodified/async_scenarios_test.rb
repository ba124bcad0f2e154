# frozen_string_literal: true

require "test_helper"
require "support/quiet_async"
require "async/barrier"
require "async/semaphore"
require "async/queue"
require "async/limited_queue"
require "async/notification"
require "async/variable"
require "async/waiter"
require "async/idler"
require "socket"
require "stringio"

# The order in which things happen under Async's API is the same on Async's own loop and on Heddle's: each scenario
# writes down events, and the records of all loops must be equal.
class AsyncScenariosTest < Minitest::Test
  include QuietAsync # warnings about failed tasks are part of the scenarios

  mode :fiber

  # A version of Async that is not known keeps its own method, which makes a Fiber for each task: here on demand.
  module OwnSchedule
    OWN = Async::Task.instance_method(:schedule).then { |method| method.super_method || method }

    class << self
      attr_accessor :active
    end

    private

    def schedule(&block) = OwnSchedule.active ? OWN.bind_call(self, &block) : super

    Async::Task.prepend(self)
  end

  LOOPS = [*AsyncLoops::ALL, :unknown_version].freeze

  class << self
    def scenario(name, &block)
      define_method(:"test_#{name.tr(" ", "_")}") do
        records = LOOPS.to_h { |loop| [loop, record(loop, &block)] }
        refute_empty records[:own]
        records.each { |loop, record| assert_equal records[:own], record, loop }
      end
    end
  end

  scenario "order of starts" do |log, task|
    3.times do |i|
      task.async do
        log << [:start, i]
        task.yield
        log << [:end, i]
      end
    end
    log << :parent
    task.async { log << :last }
    sleep(0)
    log << :parent_again
  end

  scenario "values and errors" do |log, task|
    log << task.async { 1 }.wait
    failed = task.async { raise ArgumentError, "bad" }
    log << failed.status
    log << begin
      failed.wait
    rescue ArgumentError => error
      error.message
    end
    log << task.async { |child| child.async { sleep(0.001) && 7 } }.wait.wait
    log << begin
      task.wait
    rescue => error
      error.class
    end
    log << task.async { sleep(0.001) && :slow }.then { |slow| [slow.status, slow.wait, slow.status] }
  end

  scenario "stop" do |log, task|
    child = task.async do |inner|
      inner.async do
        sleep
      ensure
        log << :grandchild
      end
      sleep
    rescue Async::Stop => stop
      log << stop.class
      raise
    ensure
      log << :child
    end
    child.stop
    log << child.status << child.wait
    late = task.async { task.yield || log << :never }
    late.stop
    log << late.status
    itself = task.async do |inner|
      inner.stop
      log << :never
    ensure
      log << :left
    end
    log << itself.status
  end

  scenario "the cause of a stop" do |log, task|
    next log << :unknown unless Async::Task.instance_method(:stop).parameters.include?(%i[key cause])

    [-> { sleep }, -> { task.yield }, -> { Thread::Queue.new.pop }, AsyncLoops.method(:read_nothing)].each do |wait|
      child = task.async do
        wait.call
      rescue Async::Stop => stop
        log << stop.cause&.message
        raise
      end
      child.stop(cause: RuntimeError.new("the cause"))
      log << child.status
    end
  end

  scenario "stop waits in ensure" do |log, task|
    go_on = Thread::Queue.new
    child = task.async do
      sleep
    ensure
      go_on.pop
      log << :cleaned
    end
    child.stop
    log << child.status
    go_on << true
    child.wait
    log << child.status
  end

  scenario "stop while deferred" do |log, task|
    go_on = Thread::Queue.new
    child = task.async do |inner|
      inner.defer_stop do
        go_on.pop
        log << :protected
      end
      log << :never
    ensure
      log << :ensure
    end
    child.stop
    log << child.status
    go_on << true
    child.wait
    log << child.status
  end

  scenario "stop of a task that runs an enumerator" do |log, task|
    child = task.async do
      numbers = Enumerator.new do |yielder|
        yielder << 1
        sleep(0.05) # on Ruby 3.1 the task stops only after that
        yielder << 2
      ensure
        log << :enumerator
      end
      log << numbers.next
      numbers.next
    ensure
      log << :task
    end
    child.stop
    begin
      child.wait
    rescue => error
      log << error.class
    end
    log << (log & %i[task]).size
    log.delete(:enumerator) # a matter of the garbage collector
  end

  scenario "barrier" do |log, task|
    barrier = Async::Barrier.new
    gates = Array.new(3) { Thread::Queue.new }
    gates.each_with_index { |gate, i| barrier.async { gate.pop && log << i } }
    log << barrier.size
    [2, 0, 1].each { |i| gates[i] << true }
    barrier.wait
    log << barrier.empty?
    barrier.async { sleep }
    barrier.stop
    log << :stopped
  end

  scenario "semaphore" do |log, task|
    semaphore = Async::Semaphore.new(2)
    gate = Thread::Queue.new
    children = Array.new(6) do |i|
      task.async do
        semaphore.acquire do
          log << [:in, i, semaphore.count]
          gate.pop
        end
      end
    end
    log << semaphore.blocking?
    children[5].stop
    5.times { gate << nil }
    children.each(&:wait)
    log << semaphore.count
    semaphore.async { log << :by_async }.wait
    semaphore.limit = 3
    log << semaphore.limit
  end

  scenario "condition" do |log, task|
    condition = Async::Condition.new
    waiting = Array.new(3) { |i| task.async { log << [i, condition.wait] } }
    waiting[1].stop
    log << condition.empty?
    condition.signal(:value)
    log << :signalled
    waiting.each(&:wait)
    log << condition.empty?
  end

  scenario "notification" do |log, task|
    notification = Async::Notification.new
    waiting = Array.new(2) { |i| task.async { log << [i, notification.wait] } }
    notification.signal(:note)
    log << :signalled
    waiting.each(&:wait)
  end

  {"condition" => Async::Condition, "notification" => Async::Notification}.each do |name, kind|
    scenario "a #{name} while other tasks are ready" do |log, task|
      signals = kind.new
      waiting = Array.new(3) { |i| task.async { log << [i, signals.wait] && task.yield } }
      others = Array.new(3) do |i|
        task.async do
          signals.signal(i) if i == 0
          3.times { |turn| task.yield || log << [:other, i, turn] }
        end
      end
      log << :parent
      [*waiting, *others].each(&:wait)
    end
  end

  # Each has its own place among the ready tasks.
  scenario "objects that are pushed" do |log, task|
    pushed = lambda do |name|
      object = Object.new
      object.define_singleton_method(:alive?) { true }
      object.define_singleton_method(:transfer) { log << name && task.async { log << [:in, name] && task.yield } }
      Fiber.scheduler.push(object)
    end
    3.times do |i|
      task.async do
        3.times do |turn|
          log << [i, turn]
          pushed.call([:pushed, i, turn])
          task.yield
        end
      end
    end
    6.times { |turn| task.yield || log << [:parent, turn] }
  end

  scenario "stops that come later" do |log, task|
    pushed = Async::Notification.new
    3.times do |i|
      task.async do |child|
        pushed.signal if i == 0
        child.stop(true)
        log << i
        sleep
      ensure
        log << [:ensure, i]
      end
      log << :parent
    end
    3.times { task.yield }
  end

  scenario "queue" do |log, task|
    queue = Async::Queue.new
    consumer = task.async { while (item = queue.dequeue) do log << item end }
    queue.enqueue(1, 2)
    log << :enqueued
    task.yield
    queue << 3
    queue << nil
    consumer.wait
    log << queue.empty?
    stopped = task.async { queue.dequeue }
    stopped.stop
    log << stopped.status
  end

  scenario "limited queue" do |log, task|
    queue = Async::LimitedQueue.new(2)
    producer = task.async { 5.times { |i| queue.enqueue(i) && log << [:in, i] } }
    log << queue.limited?
    5.times { log << queue.dequeue }
    producer.wait
  end

  scenario "waiter" do |log, task|
    waiter = Async::Waiter.new
    3.times { |i| waiter.async { sleep(0.002 * i) && i } }
    log << waiter.wait(2) << waiter.wait
  end

  scenario "variable" do |log, task|
    variable = Async::Variable.new
    reader = task.async { log << variable.value }
    variable.resolve(4)
    reader.wait
    log << variable.resolved?
  end

  scenario "idler and clock" do |log, task|
    clock = Async::Clock.start
    log << Async::Idler.new(1.1).async { :idle }.wait
    log << clock.total.positive?
    log << Fiber.scheduler.load.between?(0, 1)
  end

  scenario "timeouts" do |log, task|
    log << begin
      task.with_timeout(0.002) { sleep }
    rescue Async::TimeoutError => error
      [error.class, error.message]
    end
    log << begin
      task.with_timeout(0.002, ArgumentError, "late") { Thread::Queue.new.pop }
    rescue ArgumentError => error
      error.message
    end
    log << task.with_timeout(10) { sleep(0.001) && :in_time }
    log << begin
      task.with_timeout(10) { task.with_timeout(0) { sleep(0.5) } }
    rescue Async::TimeoutError
      :zero
    end
    log << begin
      task.with_timeout(0.001) { task.async { sleep(0.05) && :value }.wait }
    rescue Async::TimeoutError
      :waited
    end
    log << begin
      Timeout.timeout(0.002, IOError) { sleep }
    rescue IOError
      :timeout
    end
  end

  scenario "timeouts that move" do |log, task|
    log << task.with_timeout(0.001) do |timeout|
      timeout.cancel!
      sleep(0.003)
      :cancelled
    end
    next log << 4 unless defined?(Async::Timeout)

    log << task.with_timeout(0.001) do |timeout|
      timeout.duration = 10
      sleep(0.003)
      timeout.duration.between?(9, 10)
    end
    log << begin
      task.with_timeout(10) do |timeout|
        timeout.adjust(-9.999)
        sleep
      end
    rescue Async::TimeoutError
      :adjusted
    end
    log << begin
      task.with_timeout(10) { |timeout| timeout.cancel! || timeout.duration = 1 }
    rescue Async::Timeout::CancelledError => error
      error.class
    end
    kept = nil
    task.with_timeout(10) { |timeout| kept = timeout }
    kept.cancel!
    log << kept.cancelled?
  end

  scenario "the tree" do |log, task|
    child = task.async(annotation: "leaf") { |inner| inner.async(annotation: "twig") { sleep } && sleep }
    log << task.children?
    log << task.root.class.ancestors.include?(Async::Scheduler) << task.reactor.equal?(Fiber.scheduler)
    log << child.traverse.map { |node, level| [level, node.annotation] }
    out = StringIO.new
    child.print_hierarchy(out, backtrace: false)
    log << out.string.lines.map { |line| line[/(leaf|twig).*(running)/, 1] }
    log << child.finished? << child.running?
    child.stop
    log << child.finished? << Async::Task.current.equal?(task)
  end

  scenario "transient tasks" do |log, task|
    task.async(transient: true) do
      sleep
    ensure
      log << :transient_ended
    end
    task.async do |inner|
      inner.async(transient: true) do
        sleep
      ensure
        3.times { sleep(0.0005) }
        log << :inner_ended
      end
      log << :outer
    end
    log << task.children?
  end

  scenario "Fiber.schedule inside a task" do |log, task|
    fiber = Fiber.schedule { log << Async::Task.current?.class && sleep(0.001) && log << :scheduled }
    log << fiber.class
    sleep(0.005)
  end

  scenario "sockets" do |log, task|
    here, there = UNIXSocket.pair
    echo = task.async { while (line = there.gets) do there.puts(line.upcase) end }
    5.times do |i|
      here.puts("line #{i}")
      log << here.gets
    end
    log << begin
      task.with_timeout(0.002) { here.read(1) }
    rescue Async::TimeoutError
      :timeout
    end
    reading = task.async { here.read(1) }
    reading.stop
    log << reading.status
    here.close
    echo.wait
    there.close
  end

  scenario "a pipe, a process, a thread" do |log, task|
    reader, writer = IO.pipe
    task.async { sleep(0.001) && writer.write("hello") && writer.close }
    log << reader.read
    reader.close
    log << Process.wait2(spawn("exit 3")).last.exitstatus
    log << Thread.new { sleep(0.001) && :thread }.value
    log << IO.popen("echo popen", &:read)
  end

  scenario "errors that leave their task" do |log, task|
    child = task.async { sleep(0.001) && raise(IOError, "unseen") }
    sleep(0.005)
    log << child.status
    other = task.async { throw :nowhere }
    log << other.status
  end

  private

  def record(loop, &block)
    log = []
    OwnSchedule.active = loop == :unknown_version
    AsyncLoops.run(OwnSchedule.active ? :top : loop) { |task| instance_exec(log, task, &block) }
    log
  ensure
    OwnSchedule.active = false
  end
end

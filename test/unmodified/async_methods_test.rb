# frozen_string_literal: true

require "test_helper"
require "support/quiet_async"
require "io/wait"
require "resolv"
require "zlib"

# The methods that Async asks of its scheduler, each called by its name and by the Ruby method behind it: the answers of
# Async's own loop and of Heddle's loops are the same.
class AsyncMethodsTest < Minitest::Test
  include QuietAsync

  mode :fiber

  class << self
    def same(name, &block)
      define_method(:"test_#{name.tr(" ", "_")}") do
        answers = AsyncLoops::ALL.to_h do |loop|
          [loop, AsyncLoops.run(loop) { |task| instance_exec(task, Fiber.scheduler, &block) }]
        end
        refute_nil answers[:own]
        answers.each { |loop, answer| assert_equal answers[:own], answer, loop }
      end
    end
  end

  same "block and unblock" do |task, scheduler|
    fiber = Fiber.current
    woken = soon(task) { scheduler.unblock(:test, fiber) }
    late = ->(answer) { answer == false } # Async's own loop returns nil for a fiber that was woken
    answers = [late.call(scheduler.block(:test, 10))]
    woken.wait
    from_a_thread = Thread.new { scheduler.unblock(:test, fiber) }
    answers << late.call(scheduler.block(:test, 10))
    from_a_thread.join
    answers << late.call(scheduler.block(:test, 0.001))
  end

  same "kernel_sleep" do |task, scheduler|
    fiber = Fiber.current
    scheduler.kernel_sleep(0.001)
    soon(task) { scheduler.push(fiber) }
    scheduler.kernel_sleep
    stopped = task.async { scheduler.kernel_sleep }
    stopped.stop
    [sleep(0).class, sleep(0.001).class, stopped.status, Async::Task.current.equal?(task)]
  end

  same "yield, push, resume and transfer" do |task, scheduler|
    events = []
    child = task.async do
      events << :transfers
      events << scheduler.transfer
      scheduler.yield
      events << :yielded
    end
    events << :parent
    scheduler.resume(child.fiber, :value)
    events << :resumed
    object = Object.new
    object.define_singleton_method(:alive?) { true }
    object.define_singleton_method(:transfer) { events << :pushed }
    scheduler.push(object)
    child.wait
    task.yield
    events
  end

  same "raise" do |task, scheduler|
    events = []
    waits = [-> { sleep }, -> { Thread::Queue.new.pop }, AsyncLoops.method(:read_nothing), -> { scheduler.transfer }]
    children = Array.new(4) do |i|
      task.async do
        waits[i].call
        events << :went_on
      rescue IOError => error
        events << [i, error.message]
      end
    end
    children.each_with_index do |child, i|
      scheduler.raise(child.fiber, IOError, "by name #{i}") if i.even?
      scheduler.raise(child.fiber, IOError.new("an object #{i}")) if i.odd?
      events << :after
    end
    children.each(&:wait)
    events
  end

  same "fiber_interrupt" do |task, scheduler|
    next :none unless Async::Scheduler.method_defined?(:fiber_interrupt)

    children = [-> { sleep }, AsyncLoops.method(:read_nothing), -> { Thread::Queue.new.pop }].map do |wait|
      task.async do
        wait.call
      rescue IOError => error
        error.message
      end
    end
    scheduler.fiber_interrupt(children[0].fiber, IOError.new("interrupted"))
    Thread.new { children.drop(1).each { |child| scheduler.fiber_interrupt(child.fiber, IOError.new("by a thread")) } }
    children.map(&:wait)
  end

  same "with_timeout and timeout_after" do |_task, scheduler|
    scheduler.timeout_after(10, IOError, "late") { |seconds| [seconds, scheduler.with_timeout(10) { sleep(0) }] } <<
      begin
        scheduler.timeout_after(0.001, IOError, "late") { sleep }
      rescue IOError => error
        error.message
      end <<
      begin
        scheduler.with_timeout(0.001, IOError, "later") { |timeout| timeout && sleep }
      rescue IOError => error
        error.message
      end <<
      begin # by #to_f, whatever the duration is
        scheduler.with_timeout("10") { scheduler.with_timeout(nil, IOError, "at once") { sleep } }
      rescue IOError => error
        error.message
      end
  end

  same "io_wait" do |task, scheduler|
    IO.pipe do |reader, writer|
      late = [scheduler.io_wait(reader, IO::READABLE, 0.001), reader.wait_readable(0.001)]
      soon(task) { writer.write("x") }
      [*late, scheduler.io_wait(reader, IO::READABLE, 10), scheduler.io_wait(writer, IO::WRITABLE, 10),
        reader.wait_readable.equal?(reader), reader.read(1)]
    end
  end

  same "io_read and io_write" do |task, _scheduler|
    next :none unless Async::Scheduler.method_defined?(:io_write)

    IO.pipe do |reader, writer|
      buffer = IO::Buffer.new(16)
      soon(task) { IO::Buffer.for("hello") { |bytes| bytes.write(writer, 0) } }
      count = buffer.read(reader, 1)
      reading = task.async { reader.readpartial(10) }
      writer.syswrite("more")
      [count, buffer.get_string(0, 5), reading.wait, writer.write("a", "b"), reader.read(2)]
    end
  end

  same "select" do |task, scheduler|
    next :none unless Async::Scheduler.method_defined?(:io_select)

    IO.pipe do |reader, writer|
      answers = [IO.select([reader], nil, nil, 0.001), IO.select(nil, [writer], nil, 10)]
      soon(task) { writer.write("x") }
      answers << IO.select([reader], nil, nil, 10)
      answers << scheduler.io_select([reader], [writer], [], 10)
      answers.map { |found| found&.map { |ios| ios.map { |io| io.equal?(reader) ? :reader : :writer } } }
    end
  end

  same "address_resolve" do |_task, scheduler|
    [scheduler.address_resolve("127.0.0.1"), scheduler.address_resolve("localhost").include?("127.0.0.1"),
      Addrinfo.tcp("localhost", 80).ip?, Addrinfo.getaddrinfo("127.0.0.1", nil).first.ip_address]
  end

  same "process_wait" do |task, scheduler|
    beside = task.async { sleep(0.001) && :beside }
    status = scheduler.process_wait(spawn("exit 3"), 0)
    running = spawn("sleep 60")
    not_yet = Process.wait(running, Process::WNOHANG)
    Process.kill(:KILL, running)
    [status.exitstatus, not_yet, Process.wait2(running).last.termsig, system("exit 4"), $?.exitstatus, `echo x`,
      beside.wait]
  end

  # Ruby 3.4 hands compression and the like to the scheduler's pool of threads, if it has one.
  def test_blocking_operation_wait
    skip "Async has no pool of threads here" unless Async::Scheduler.const_defined?(:WorkerPool) &&
      Async::Scheduler::WorkerPool
    text = Random.new(1).bytes(1 << 20)
    calls = [true, false].map do |own|
      selector = IO::Event::Selector.new(Fiber.current) if own
      scheduler = Async::Scheduler.new(worker_pool: true, selector: selector)
      Fiber.set_scheduler(scheduler)
      pool = scheduler.instance_variable_get(:@worker_pool)
      events = []
      scheduler.run do |task|
        packing = task.async { Zlib::Deflate.deflate(text).tap { events << :packed } }
        beside = task.async { events << :beside }
        [packing, beside].each(&:wait)
        assert_equal text, Zlib::Inflate.inflate(packing.wait)
        assert_raises(Zlib::DataError) { task.async { Zlib::Inflate.inflate("no such data") }.wait }
        stopped = task.async { loop { Zlib::Deflate.deflate(text) } }
        stopped.stop
        stopped.wait
        assert_predicate stopped, :stopped?
      end
      [pool.statistics[:call_count].positive?, events]
    ensure
      Fiber.set_scheduler(nil)
    end
    assert_equal calls.first, calls.last
  end

  # ---- Async's next version: what lib/heddle/async calls, overrides or replaces is as it was read

  # Methods with the kinds of their parameters. Those of Async::Scheduler are also what its tasks call.
  USED = {
    Async::Scheduler => {
      load: [], terminate: [], close: [], scheduler_close: %i[opt], run_once!: %i[opt],
      with_timeout: %i[req opt opt block], timeout_after: %i[req req req block],
      transfer: [], yield: [], push: %i[req], resume: %i[req rest], block: %i[req req], unblock: %i[req req],
      kernel_sleep: %i[opt], process_wait: %i[req req], address_resolve: %i[req], io_wait: %i[req req opt]
    },
    Async::Node => {consume: [], add_child: %i[req], remove_child: %i[req], finished?: [], "transient=": %i[req]},
    Async::Children => {initialize: [], adjust_transient_count: %i[req]},
    Async::Task => {annotation: [], completed!: %i[req], failed!: %i[opt], finish!: []}
  }.freeze
  VARIABLES = %i[@selector @interrupted @blocked @busy_time @idle_time @children @transient].freeze

  # Methods that stay Async's in Heddle's schedulers: none of them asks more of a selector than #wakeup and #close.
  KEPT = %i[async cancel closed? fiber get_timeout interrupt interrupted? process_fork run_loop run_once sleep stop
    to_s].freeze

  # Checksums of Async::Task#schedule, which lib/heddle/async/task.rb replaces: 2.23.1, 2.46.0.
  SCHEDULE = [3_785_329_152, 2_059_931_492].freeze

  def test_what_is_used_is_as_it_was_read
    USED.each do |owner, methods|
      methods.each do |name, kinds|
        assert_equal kinds, owner.instance_method(name).parameters.map(&:first), "#{owner}##{name}"
      end
    end
    assert Async::Node.protected_method_defined?(:add_child)
    assert Async::Scheduler.private_method_defined?(:run_once!)
    scheduler = Async::Scheduler.new(selector: IO::Event::Selector.new(Fiber.current))
    assert_empty VARIABLES - scheduler.instance_variables
    scheduler.close
    Sync { assert Fiber.current.instance_variable_defined?(:@async_task) }
    Sync { |task| task.with_timeout(60) { |timeout| assert_empty asked_of_timers(timeout) } }
  end

  def test_schedulers_have_no_method_that_was_not_read
    [Async::Scheduler, Async::Reactor].each do |asyncs|
      refute_includes asyncs.singleton_methods(false), :new, "Async makes its schedulers in another way now"
      ours = asyncs.new.tap(&:close).class
      names = asyncs.instance_methods(false) + asyncs.private_instance_methods(false)
      assert_empty names.select { |name| ours.instance_method(name).owner == asyncs } - KEPT
    ensure
      Fiber.set_scheduler(nil)
    end
  end

  # Read a new version's method, compare it with lib/heddle/async/task.rb, and add the version there and its checksum
  # here.
  def test_the_replaced_method_is_a_version_that_was_read
    method = Async::Task.instance_method(:schedule)
    method = method.super_method until method.nil? || method.owner.name == "Heddle::AsyncLoop::Task"
    refute_nil method, "this version's method is not replaced"
    file, line = method.super_method.source_location
    code = File.readlines(file).drop(line - 1).take_while { |text| text !~ /\A\tend/ }
    code = code.map(&:strip).reject { |text| text.empty? || text.start_with?("#") }
    assert_includes SCHEDULE, Zlib.crc32(code.join("\n")), "#{file}:#{line} of async #{Async::VERSION} has changed"
  end

  # AsyncScenariosTest runs its scenarios with such a version's method.
  def test_the_method_of_a_version_that_is_not_known_is_not_replaced
    script = <<~RUBY
      require "async/version"
      Async.__send__(:remove_const, :VERSION)
      Async::VERSION = "2.40.0"
      require "heddle/async"
      print Async::Task.instance_method(:schedule).owner, Sync { |task| task.async { sleep(0) && 1 }.wait }
    RUBY
    assert_equal "Async::Task1", IO.popen([*RUBY, "-e", script, err: %i[child out]], &:read)
  end

  private

  # The methods that Async::Timeout calls of its timers, or of the timer in older versions, beyond those that were read.
  def asked_of_timers(timeout)
    return [] unless defined?(Async::Timeout)

    code = File.read(Async::Timeout.instance_method(:duration).source_location.first)
    code.scan(/@(timers|handle)&?\.(\w+[?!=]?)/).map(&:last).uniq - %w[now schedule time block cancel! cancelled?]
  end

  # Runs the block once the caller waits.
  def soon(task)
    task.async do
      task.yield
      yield
    end
  end
end

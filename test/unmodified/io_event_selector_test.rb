# frozen_string_literal: true

require "test_helper"
require "heddle/selector"
require "async"
require "io/nonblock"
require "objspace"
require "socket"

# Heddle's backends behind io-event's interface of selectors, used as Async's scheduler uses them, and as its fibers may
# break them. async_scenarios_test runs Async's own API on it.
class IOEventSelectorTest < Minitest::Test
  mode :fiber

  ROOT = File.expand_path("../..", __dir__)

  # What a selector calls on a pushed object, as Async's FiberInterrupt answers it.
  Pushed = Struct.new(:action) do
    def alive? = true

    def transfer = action.call
  end

  class Boom < StandardError; end

  class << self
    def on_each_backend(name, &block)
      Heddle::Scheduler.backends.each do |backend|
        define_method(:"test_#{name.tr(" ", "_")}_on_#{backend}") do
          with_backend(backend) { instance_exec(&block) }
        end
      end
    end
  end

  def setup
    @experimental = Warning[:experimental]
    Warning[:experimental] = false # IO::Buffer before Ruby 4.0
  end

  def teardown
    Warning[:experimental] = @experimental
    @ios&.each(&:close)
    assert_nil Fiber.scheduler
  end

  # What io-event's own selectors answer to, so that a new version's new method is noticed. Those of io_uring alone are
  # optional: Async asks for them by respond_to?, or not at all.
  def test_methods_of_io_events_selectors
    optional = %i[io_close io_pread io_pwrite futex_wait futex_waitv]
    methods = IO::Event::Selector::EPoll.instance_methods(false) - optional
    assert_empty methods - Heddle::Selector.instance_methods(false)
  end

  def test_chosen_by_the_environment
    assert_same Heddle::Selector, IO::Event::Selector.default({"IO_EVENT_SELECTOR" => "Heddle"})
    script = "Sync { puts Fiber.scheduler.instance_variable_get(:@selector).class, sleep(0) }"
    environment = {"IO_EVENT_SELECTOR" => "Heddle",
                   "RUBYOPT" => "-W0 -I#{ROOT}/lib -rbundler/setup -rheddle/selector"}
    out = IO.popen([environment, RbConfig.ruby, "-rasync", "-e", script, err: [:child, :out]], &:read)
    assert_equal "Heddle::Selector\n0\n", out
  end

  on_each_backend "ready descriptors" do
    near, far = pair
    found = []
    start { found << [:read, @selector.io_wait(Fiber.current, near, IO::READABLE)] }
    start { found << [:both, @selector.io_wait(Fiber.current, near, IO::READABLE | IO::WRITABLE)] }
    assert_equal 1, select_until { found.any? }
    assert_equal [[:both, IO::WRITABLE]], found
    far.write("x")
    select_until { found.size == 2 }
    assert_equal [:read, IO::READABLE], found.last
    start { found << [:file, @selector.io_wait(Fiber.current, keep(File.open(__FILE__)), IO::READABLE)] }
    select_until { found.size == 3 }
    assert_equal [:file, IO::READABLE], found.last
  end

  on_each_backend "two fibers on one descriptor" do
    near, far = pair
    ended = []
    fibers = Array.new(2) do |number|
      start do
        @selector.io_wait(Fiber.current, near, IO::READABLE)
        ended << number
      rescue Boom
        ended << :struck
      end
    end
    fibers.first.raise(Boom)
    far.write("x")
    select_until { ended.size == 2 }
    assert_equal [:struck, 1], ended
  end

  # Both waits have ended when the first fiber strikes the second, which must not be resumed for that wait again.
  on_each_backend "a fiber is struck between its event and its turn" do
    near, far = pair
    ended = []
    fibers = Array.new(2) do |number|
      start do
        @selector.io_wait(Fiber.current, near, IO::READABLE)
        ended << number
        other = fibers[1 - number]
        @selector.raise(other, Boom) if other.alive?
      rescue Boom
        ended << :struck
        @selector.transfer
        ended << :resumed
      end
    end
    far.write("x")
    select_until { ended.size == 2 }
    5.times { @selector.select(0) }
    assert_equal 2, ended.size, ended
    assert_includes ended, :struck
  end

  on_each_backend "cancelled waits leave nothing" do
    near, far = pair
    struck = 0
    fiber = start do
      100.times do
        @selector.io_wait(Fiber.current, near, IO::READABLE)
      rescue Boom
        struck += 1
      end
    end
    100.times do
      @selector.select(0)
      fiber.raise(Boom)
    end
    assert_equal 100, struck
    refute_predicate fiber, :alive?
    far.write("x")
    assert_equal 0, @selector.select(0) + @selector.select(0.01)
  end

  on_each_backend "something else resumes a fiber that waits" do
    near, = pair
    results = []
    fiber = start { 2.times { results << @selector.io_wait(Fiber.current, near, IO::READABLE) } }
    fiber.transfer
    @selector.push(fiber)
    @selector.select(0)
    assert_equal [false, false], results
  end

  # Ruby 4.0 raises in the fiber itself, through the scheduler.
  on_each_backend "close while waiting" do
    near, far = pair
    error = nil
    async do |task|
      waiter = task.async do
        near.wait_readable
      rescue IOError => error
      end
      near.close
      waiter.wait
    end
    assert_match(/closed/, error.message)
    assert_nil far.read(1), "the peer sees the close"
  end

  on_each_backend "close in another thread" do
    near, far = pair
    error = nil
    async do |task|
      waiter = task.async do
        near.read(1)
      rescue IOError => error
      end
      thread = Thread.new { near.close }
      waiter.wait
      thread.join
    end
    assert_match(/closed/, error.message)
    assert_nil far.read(1)
  end

  on_each_backend "a descriptor's number is reused" do
    200.times do |number|
      near, far = UNIXSocket.pair
      done = false
      if number.odd? # closed behind a wait that was left
        struck = start do
          @selector.io_wait(Fiber.current, near, IO::READABLE)
        rescue Boom
        end
        struck.raise(Boom)
      else
        start { done = @selector.io_wait(Fiber.current, near, IO::READABLE) }
        far.write("x")
        select_until { done }
        assert_equal IO::READABLE, done
      end
    ensure
      near.close
      far.close
    end
  end

  on_each_backend "wakeup from threads" do
    refute @selector.wakeup
    woken = Queue.new
    threads = Array.new(4) do
      Thread.new do
        25.times do
          @selector.push(Pushed.new(-> { woken << true }))
          @selector.wakeup
          Thread.pass
        end
      end
    end
    assert_within(20) { @selector.select(20) until woken.size == 100 }
    threads.each(&:join)
    thread = Thread.new { wait_until { @selector.wakeup } }
    assert_within(10) { assert_equal 0, @selector.select(20) }
    thread.join
    assert_operator @selector.idle_duration, :>, 0
  end

  # Ruby runs handlers of signals and other threads at the end of a call: between the look at what is ready and the
  # sleep, select makes one.
  on_each_backend "wakeup just before the sleep" do
    {pushed: -> { @selector.push(Pushed.new(-> {})) }, signalled: -> {}}.each do |name, work|
      just_before_the_sleep { Thread.new { work.call.then { @selector.wakeup } }.join }
      assert_within(10, remeasure: 0) { assert_equal 0, @selector.select(20), name }
    end
    just_before_the_sleep { @selector.close }
    assert_within(10, remeasure: 0) { assert_equal 0, @selector.select(20) }
  ensure
    Thread.current.singleton_class.send(:remove_method, :pending_interrupt?)
  end

  on_each_backend "a masked interrupt ends the wait" do
    entered = Queue.new
    thread = Thread.new do
      Thread.current.report_on_exception = false
      selector = Heddle::Selector.new(Fiber.current)
      Thread.handle_interrupt(Boom => :never) do
        entered << true
        selector.select(nil) # may begin before or after the interrupt
        selector.select(nil)
      ensure
        selector.close
      end
    end
    entered.pop
    thread.raise(Boom)
    assert_within(10, remeasure: 0) { assert_raises(Boom) { thread.join } }
  end

  on_each_backend "closing" do
    assert_raises(ArgumentError) { @selector.__send__(:initialize, Fiber.current) }
    entered = Thread.new { wait_until { @selector.wakeup } }
    closer = Thread.new do
      Thread.current.report_on_exception = false
      wait_until { closes_while_asleep? }
    end
    @selector.select(0.01) while entered.alive? || closer.alive?
    assert closer.value
    near, = pair
    fiber = start do
      @selector.io_wait(Fiber.current, near, IO::READABLE)
    rescue Boom
      :struck
    end
    @selector.close
    @selector.close
    assert_predicate @selector, :closed?
    assert_equal :struck, fiber.raise(Boom), "a fiber leaves a closed selector"
    refute @selector.wakeup
    assert_raises(IOError) { @selector.select(0) }
    assert_raises(IOError) { Heddle::Selector.allocate.select(0) }
  end

  on_each_backend "fork" do
    near, far = pair
    done = false
    start { done = @selector.io_wait(Fiber.current, near, IO::READABLE) }
    @selector.push(Pushed.new(-> {}))
    child = fork do
      parents = @selector.ready? || @selector.select(0) > 0 || @selector.closed?
      own = nil
      Fiber.new { own = @selector.io_wait(Fiber.current, far, IO::WRITABLE) }.transfer
      @selector.select(1)
      @selector.close
      selector = Heddle::Selector.new(Fiber.current) # the child's own works
      answer = nil
      Fiber.new { answer = selector.io_wait(Fiber.current, far, IO::WRITABLE) }.transfer
      selector.select(1)
      GC.start
      exit!((!parents && own && answer) ? 0 : 1)
    end
    assert_predicate Process.wait2(child).last, :success?
    far.write("x")
    select_until { done }
  end

  # The child goes on in a fiber that the parent's select has resumed.
  on_each_backend "a fiber forks" do
    resumed = []
    child = nil
    start do
      @selector.yield
      child = fork || :child
    end
    start do
      @selector.yield
      resumed << true
    end
    @selector.select(0)
    exit!((resumed.empty? && !@selector.closed?) ? 0 : 1) if child == :child
    assert_predicate Process.wait2(child).last, :success?
    assert_equal [true], resumed
  end

  on_each_backend "garbage collection" do
    near, far = pair
    results = Hash.new(0)
    20.times do # nothing but the selector knows these fibers
      Fiber.new { results[@selector.io_wait(Fiber.current, near, IO::READABLE)] += 1 }.transfer
      Fiber.new { results[@selector.yield] += 1 }.transfer
      @selector.push(Fiber.new { results[:pushed] += 1 })
    end
    GC.start
    GC.respond_to?(:verify_compaction_references) && compact
    far.write("x")
    GC.stress = true
    @selector.select(0)
    GC.stress = false
    select_until { results.values.sum == 60 }
    assert_equal({IO::READABLE => 20, nil => 20, :pushed => 20}, results)
  ensure
    GC.stress = false
  end

  on_each_backend "waits leak nothing" do
    near, far = pair
    rounds = 0
    buffers = Array.new(2) { IO::Buffer.new(16) }
    play = lambda do |io, buffer, first|
      Fiber.new do
        loop do
          @selector.io_write(Fiber.current, io, buffer, 4) if first || rounds.positive?
          first = true
          @selector.io_read(Fiber.current, io, buffer, 4)
          rounds += 1
        end
      end.transfer
    end
    play.call(near, buffers[0], true)
    play.call(far, buffers[1], false)
    select_until { rounds > 5_000 }
    GC.start
    before = [ObjectSpace.memsize_of(@selector), resident, Dir.children("/proc/self/fd").size] if proc?
    select_until { rounds > 105_000 }
    GC.start
    return unless proc?

    assert_equal before[0], ObjectSpace.memsize_of(@selector)
    assert_operator resident - before[1], :<, 4096, "KiB more after 100,000 waits"
    assert_equal before[2], Dir.children("/proc/self/fd").size
  end

  on_each_backend "bytes" do
    near, far = pair
    buffer = IO::Buffer.new(64)
    got = []
    start { got << @selector.io_read(Fiber.current, near, buffer, 5, 2) }
    far.write("abc")
    @selector.select(1)
    far.write("de")
    select_until { got.any? }
    assert_equal [5, "abcde"], [got.last, buffer.get_string(2, 5)]
    assert_equal(-Errno::EAGAIN::Errno, @selector.io_read(Fiber.current, near, buffer, 0))
    assert_equal(-Errno::EINVAL::Errno, @selector.io_read(Fiber.current, near, buffer, 1, 65))
    assert_equal 0, @selector.io_read(Fiber.current, near, buffer, 1, 64)
    assert_equal 64, @selector.io_write(Fiber.current, near, buffer, 64)
    far.read(64)
    far.close
    assert_equal 0, @selector.io_read(Fiber.current, near, buffer, 1), "the end of the file"
    assert_equal(-Errno::EPIPE::Errno, @selector.io_write(Fiber.current, near, buffer, 1))
    # As Ruby 4.1 calls them: one transfer at most.
    reader, writer = keep(*IO.pipe)
    assert_equal(-Errno::EAGAIN::Errno, @selector.io_read_once(Fiber.current, reader, buffer, 0, 4))
    assert_equal 3, @selector.io_write_once(Fiber.current, writer, buffer, 1, 3)
    assert_equal 3, @selector.io_read_once(Fiber.current, reader, buffer, 0, 9)
    assert_equal(-Errno::EINVAL::Errno, @selector.io_read_once(Fiber.current, reader, buffer, 65, 1))
  end

  on_each_backend "a blocking pipe stays one" do
    reader, writer = keep(*IO.pipe)
    [reader, writer].each { |io| io.nonblock = false }
    buffer = IO::Buffer.new(200_000)
    sent = nil
    start { sent = @selector.io_write(Fiber.current, writer, buffer, 200_000) }
    received = 0
    into = IO::Buffer.new(200_000)
    start { received += @selector.io_read(Fiber.current, reader, into, 1) until received == 200_000 }
    select_until { received == 200_000 && sent }
    assert_equal 200_000, sent
    refute reader.nonblock? || writer.nonblock?
  end

  on_each_backend "child processes" do
    async do |task|
      child = spawn("sleep 0.05")
      assert_equal child, Process.wait2(child).first
      group = spawn("sleep 0.05", pgroup: true)
      sleeper = task.async { sleep 0.01 and :slept }
      assert_equal group, Process.wait2(-group).first # waits in a thread
      assert_equal :slept, sleeper.wait
      assert_raises(Errno::ECHILD) { Process.wait(child) }
      lasting = spawn("sleep 30")
      waiter = task.async { Process.wait(lasting) }
      waiter.stop
      Process.kill(:KILL, lasting)
      assert_equal lasting, Process.wait2(lasting).first
    end
  end

  on_each_backend "arguments" do
    assert_raises(TypeError) { @selector.select("soon") }
    assert_raises(ArgumentError) { @selector.select(Float::NAN) }
    assert_raises(ArgumentError) { @selector.raise(Fiber.current) }
    assert_equal 0, @selector.select(-0.5)
    io, other = UNIXSocket.pair
    [io, other].each(&:close)
    assert_raises(IOError) { @selector.io_wait(Fiber.current, io, IO::READABLE) }
    received = start { @selector.transfer }.then do |fiber|
      start { @selector.raise(fiber, Boom, "text") }
    rescue Boom => error
      error.message
    end
    assert_equal "text", received
  end

  private

  def with_backend(backend)
    before = ENV["HEDDLE_BACKEND"]
    ENV["HEDDLE_BACKEND"] = backend
    @selector = Heddle::Selector.new(Fiber.current)
    assert_equal backend, @selector.backend
    yield
  ensure
    ENV["HEDDLE_BACKEND"] = before
    @selector&.close
  end

  # In a task of Async's on this selector.
  def async(&block)
    Async::Reactor.new(selector: @selector).run(&block).wait
  ensure
    Fiber.set_scheduler(nil)
  end

  def start(&block) = Fiber.new(&block).tap(&:transfer)

  # Calls the block in the middle of the next select, once.
  def just_before_the_sleep(&block)
    Thread.current.define_singleton_method(:pending_interrupt?) do |*arguments|
      super(*arguments).tap { block&.call.then { block = nil } }
    end
  end

  # The number of waits that the last select has ended.
  def select_until
    deadline = monotonic + 30
    ended = 0
    until yield
      flunk "waited 30 s in vain" if monotonic > deadline
      ended = @selector.select(0.5)
    end
    ended
  end

  def closes_while_asleep?
    Heddle::Selector.instance_method(:close).bind_call(@selector) if @selector.wakeup
    false
  rescue Heddle::WrongThread
    true
  end

  def pair = keep(*UNIXSocket.pair)

  def keep(*ios)
    (@ios ||= []).concat(ios)
    (ios.size == 1) ? ios.first : ios
  end

  def compact
    room = (RUBY_VERSION < "3.2") ? :double_heap : :expand_heap
    GC.verify_compaction_references(**{:toward => :empty, room => true})
  rescue NotImplementedError
    GC.start
  end

  def proc? = File.exist?("/proc/self/statm")

  def resident = File.read("/proc/self/statm").split[1].to_i * 4
end

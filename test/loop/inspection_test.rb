# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "io/wait"
require "objspace"
require "tmpdir"

# What a loop reports of itself: its tasks and what each waits for, its counters, its memory.
class InspectionTest < Minitest::Test
  include LoopHelpers

  # What a task waits for, in the dump's words.
  WAITS = {
    "the end of a sleep" => ->(_) { sleep },
    "a Thread::Queue" => ->(_) { Thread::Queue.new.pop },
    "the end of task " => ->(_) { Heddle.spawn { sleep }.value },
    "descriptor %d to be readable" => ->(io) { io.wait_readable },
    "descriptor %d to be writable" => ->(io) { fill(io) && io.wait_writable },
    "descriptor %d to be readable or writable" => ->(io) { fill(io) && io.wait(IO::READABLE | IO::WRITABLE, nil) },
    "descriptor %d to have urgent data" => ->(io) { io.wait_priority },
    "one of several descriptors" => ->(io) { IO.select([io], nil, [io]) }
  }.freeze

  def self.fill(io)
    true while io.write_nonblock("x" * 65_536, exception: false) != :wait_writable
    true
  end

  def test_the_dump_names_what_each_task_waits_for
    pairs = Array.new(WAITS.size) { UNIXSocket.pair }
    text = Heddle.run do
      tasks = WAITS.values.zip(pairs).map
        .with_index { |(wait, (io, _)), index| Heddle.spawn(name: "waiter #{index}") { wait.call(io) } }
      sleep(0.01)
      dumped.tap { (Fiber.scheduler.tasks - [Heddle::Task.current]).each(&:cancel) && tasks.each(&:wait) }
    end
    WAITS.keys.zip(pairs).each_with_index do |(words, (io, _)), index|
      assert_match(
        /^  \d+ +waiting +\d+\.\d+ m?s +"waiter #{index}" +#{Regexp.escape(format(words, io.fileno))}.*\n    from \S/,
        text
      )
    end
    # The block's own task, which writes the dump, and the one that waiter 2 waits for.
    all = "#{WAITS.size + 2} tasks"
    assert_match(/\Aprocess #{Process.pid}: #{all}\nmain thread: #{all} on \w+$/, text)
  ensure
    pairs.flatten.each(&:close)
  end

  def test_a_ready_task_waits_for_its_turn
    Heddle.run do
      queue = Thread::Queue.new
      task = Heddle.spawn { queue.pop }
      queue << 1
      assert_equal "its turn", task.waits_for
      assert_kind_of Float, task.waits_since
      task.wait
      assert_equal [nil, nil, nil], [task.waits_for, task.waits_since, task.backtrace]
      assert_nil Heddle::Task.current.waits_for
    end
  end

  # The frames of the dump itself are not part of it.
  def test_the_dumping_tasks_backtrace_begins_at_its_call
    text = Heddle.run { dumped }
    refute_includes text, "heddle/core/dump.rb"
    assert_includes text, __FILE__
  end

  # The backtrace is that of the fiber that the task has resumed.
  def test_the_dump_shows_the_nested_fiber_that_waits
    Heddle.run do
      task = Heddle.spawn { Fiber.new(blocking: false) { a_place_to_wait }.resume }
      assert_includes dumped, "a_place_to_wait"
      task.cancel
    end
  end

  def test_a_dump_on_a_signal_while_all_wait
    outcome = in_child(<<~RUBY, &signal_at("ready", :USR1))
      previous = Heddle.dump_on("USR1")
      puts previous
      Heddle.run do
        reader, writer = UNIXSocket.pair
        Heddle.spawn(name: "reader") { reader.readpartial(1) }
        Heddle.spawn { sleep(0.01) until File.size?("/proc/self/fd/2"); writer.write("x") }
        puts "ready"
      end
      puts "continued"
    RUBY
    assert_predicate outcome.status, :success?
    assert_equal %w[DEFAULT ready continued], outcome.out.lines(chomp: true)
    assert_match(/ "reader" +descriptor \d+ to be readable$/, outcome.err)
  end

  def test_the_dump_shows_the_loops_of_other_threads_and_the_pools
    ready = Thread::Queue.new
    thread = Thread.new do
      Heddle.run do
        pool = Heddle::FiberPool.new(3, name: "shown")
        pool.spawn { sleep }
        ready << Heddle.spawn(name: "elsewhere") { sleep }
        sleep
      end
    end
    thread.name = "worker 7"
    ready.pop
    text = wait_until(what: "the other loop's tasks") { (text = dumped).match?(/waiting .* "elsewhere"/) && text }
    assert_match(/^thread "worker 7": 3 tasks on \w+$/, text)
    assert_match(/^#<Heddle::FiberPool "shown" 1 of 3 running, 0 queued>$/, text)
    refute_match(/main thread/, text)
    both = Heddle.run { dumped }
    ["main thread: 1 task", "thread \"worker 7\": 3 tasks"].each { |header| assert_includes both, header }
  ensure
    thread&.kill&.join
  end

  def test_the_dump_shows_a_pool_whose_new_has_raised
    pools = [Heddle::ResourcePool, Heddle::Semaphore].map(&:allocate) # what is left of one
    begin
      Heddle::FiberPool.new(0)
    rescue ArgumentError
      nil
    end
    assert_includes Heddle.run { dumped }, "#<Heddle::FiberPool that has not begun>"
    assert_equal 2, pools.map(&:inspect).size
  end

  def test_the_dump_shows_peers_and_deadlines
    server = TCPServer.new("127.0.0.1", 0)
    path = File.join(Dir.mktmpdir, "socket")
    local = UNIXServer.new(path)
    clients = [TCPSocket.new("127.0.0.1", server.addr[1]), UNIXSocket.new(path)]
    text = Heddle.run do
      tasks = Heddle.deadline(50) { clients.map { |client| Heddle.spawn { client.wait_readable } } }
      bound = Heddle.spawn { Heddle.deadline(40) { clients.first.wait_readable } }
      sleep(0.001)
      assert_in_delta 40, bound.remaining, 5
      assert_nil Heddle::Task.current.remaining
      dumped.tap { [*tasks, bound].each(&:cancel) }
    end
    address = Regexp.escape("127.0.0.1:#{server.addr[1]}")
    waits = /^  \d+ +waiting +\d+\.\d+ m?s +\d\d\.\d s +descriptor \d+ \(#{address}\) to be readable$/
    assert_match(waits, text)
    assert_match(/ descriptor \d+ \(#{Regexp.escape(path)}\) to be readable$/, text)
  ensure
    [server, local, *clients].compact.each(&:close)
    FileUtils.rm_rf(File.dirname(path)) if path
  end

  def test_an_earlier_handler_is_called_after_the_dump
    out = assert_child(<<~RUBY)
      Signal.trap("USR2") { |number| puts($restarted = "restarted by \#{number}") }
      Heddle.dump_on("USR2", $stdout)
      Thread.new { Heddle.run { Process.kill(:USR2, $$) && sleep(0.001) until $restarted } }.join
    RUBY
    assert_match(/\Aprocess \d+: 1 task\nthread .*: 1 task on .*\n.*restarted by #{Signal.list["USR2"]}\n\z/m, out)
  end

  def test_without_a_loop_there_is_nothing_to_dump
    assert_nil Heddle.stats
    assert_raises(Heddle::SchedulerMissing) { Heddle.dump(StringIO.new) }
    out = assert_child(<<~RUBY)
      Heddle.dump_on("USR1", $stdout)
      Process.kill(:USR1, $$)
      sleep(0.001)
    RUBY
    assert_match(/\Aprocess \d+: no tasks, since no loop of Heddle's is open\n\z/, out)
  end

  def test_counters
    with_pair do |reader, writer|
      Heddle.run do
        before = Heddle.stats
        tasks = [
          sleeper = Heddle.spawn { sleep(60) },
          Heddle.spawn { Thread::Queue.new.tap { |queue| Heddle.spawn { sleep(0) && queue << 1 } }.pop },
          Heddle.spawn { reader.wait_readable },
          Heddle.spawn { IO.select([reader]) },
          Fiber.schedule { sleep(0) }
        ].grep(Heddle::Task)
        assert_equal Fiber.scheduler.tasks.size, Heddle.stats[:tasks]
        assert_operator Heddle.stats[:tasks], :>, 3
        assert_operator Heddle.stats[:timers], :>=, 1
        sleeper.cancel
        writer.write("x")
        tasks.each(&:wait)
        3.times { Heddle.spawn { sleep(0) }.wait }
        sleep(0.001) until Heddle.stats[:sleeps] > before[:sleeps] # on a busy machine each wait may be over at once
        after = Heddle.stats
        %i[sleep block io select turn].each do |kind|
          assert_operator after[:waits][kind], :>, before[:waits][kind], kind.to_s
        end
        %i[switches polls sleeps system_calls spawned reused].each do |counter|
          assert_operator after[counter], :>, before[counter], counter.to_s
        end
        assert_operator after[:empty_polls], :<=, after[:polls]
        assert_equal [1, 0], after.values_at(:tasks, :timers)
        assert_operator after[:idle], :>, 0
        assert_equal 0.0, after[:longest_run]
      end
    end
  end

  def test_the_longest_run_without_parking
    Heddle.run do
      scheduler = Fiber.scheduler
      scheduler.measure_runs = true
      sleep(0)
      task = Heddle.spawn do
        sleep(0)
        busy_until = monotonic + 0.05
        nil while monotonic < busy_until
        sleep(0)
      end
      task.wait
      assert_operator Heddle.stats[:longest_run], :>=, 0.05
      scheduler.measure_runs = false
      measured = Heddle.stats[:longest_run]
      busy_until = monotonic + measured * 2
      nil while monotonic < busy_until
      sleep(0)
      assert_in_delta measured, Heddle.stats[:longest_run], 0.0
    end
  end

  def test_memory_outside_of_ruby_is_reported_to_the_gc
    assert_operator ObjectSpace.memsize_of(Heddle::Scheduler.new), :>, 40
    Heddle.run do
      before = ObjectSpace.memsize_of(Fiber.scheduler)
      tasks = Array.new(1000) { Heddle.spawn { sleep } }
      assert_operator ObjectSpace.memsize_of(Fiber.scheduler) - before, :>, 1000 * 100
      assert_operator ObjectSpace.memsize_of(tasks.first), :>, 100
      runs = ObjectSpace.each_object(Heddle::Run).to_a
      assert_operator ObjectSpace.memsize_of(runs.last), :>, 40
      tasks.each(&:cancel)
    end
  end

  private

  def a_place_to_wait = sleep

  def dumped
    out = StringIO.new
    Heddle.dump(out)
    out.string
  end
end

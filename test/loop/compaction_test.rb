# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/hosts"

runs_on also: %i[yjit]

class CompactionTest < Minitest::Test
  include LoopHelpers

  def setup
    skip "this Ruby cannot compact its heap" unless GC.respond_to?(:compact)
    GC.compact
  rescue NotImplementedError
    skip "this Ruby cannot compact its heap"
  end

  def test_compaction_between_waits
    with_pair do |reader, writer|
      mutex = Thread::Mutex.new
      queue = Thread::Queue.new
      Heddle.run do
        tasks = churn do |index|
          case index % 4
          when 0 then Heddle.spawn(name: "reader #{index}") { reader.readpartial(1) }
          when 1 then Heddle.spawn(name: "popper #{index}") { queue.pop }
          when 2 then Heddle.spawn(name: "sleeper #{index}") { sleep(0.05) && mutex.synchronize { sleep(0) && "s" } }
          when 3 then Heddle.spawn(name: "nested #{index}") { Fiber.new { sleep(0.05) && "n" }.resume }
          end
        end
        GC.compact
        25.times do
          writer.write("x")
          queue << "q"
          GC.compact if rand(3) == 0
          sleep(0)
        end
        assert_equal %w[x q s n] * 25, tasks.map(&:value)
        assert_equal ["reader 0", "nested 99"], [tasks.first.name, tasks.last.name]
      end
    end
  end

  def test_automatic_compaction
    before = GC.auto_compact
    GC.auto_compact = true
    Heddle.run do
      200.times do |round|
        tasks = Array.new(20) { |index| Heddle.spawn { sleep(0.0001) && "#{round} #{index}" } }
        GC.start if round % 20 == 0
        assert_equal Array.new(20) { |index| "#{round} #{index}" }, tasks.map(&:value)
      end
      GC.start
    end
  ensure
    GC.auto_compact = before unless before.nil?
  end

  # Moves every object that can move and then checks each reference. In a process of its own, since it doubles the
  # heap.
  def test_every_reference_after_a_compaction
    skip "this Ruby has no GC.verify_compaction_references" unless GC.respond_to?(:verify_compaction_references)
    out = assert_child(<<~'RUBY')
      verify = lambda do
        if RUBY_VERSION < "3.2"
          GC.verify_compaction_references(double_heap: true, toward: :empty)
        else
          GC.verify_compaction_references(expand_heap: true, toward: :empty)
        end
      rescue ArgumentError
        GC.verify_compaction_references
      end
      reader, writer = UNIXSocket.pair
      values = Heddle.run do
        pool = Heddle::FiberPool.new(3, queue: 50, name: "pool")
        pooled = Array.new(20) { |index| pool.spawn { sleep(0.01) && index } }
        tasks =
          Array.new(20) { |index| Heddle.spawn(name: "t#{index}") { index.odd? ? reader.readpartial(1) : sleep(0.02) } }
        timed = Heddle.spawn { Fiber.scheduler.timeout_after(0.05, IOError, "late") { sleep } rescue $!.message }
        verify.call
        10.times { writer.write("x") && sleep(0) }
        verify.call
        [tasks.count { |task| task.value == "x" }, pooled.sum(&:value), timed.value,
          Heddle.spawn { sleep(0) && 1 }.value]
      end
      verify.call
      puts values.join(" ")
    RUBY
    assert_equal "10 190 late 1\n", out
  end

  # Under another gem's scheduler no loop of ours marks the tasks: only their pool knows the queued ones.
  def test_queued_tasks_under_another_scheduler
    reason = Hosts.missing(:async)
    skip reason if reason
    out = assert_child(<<~RUBY, gems: true)
      require "async"
      Fiber.set_scheduler(Async::Scheduler.new)
      Fiber.schedule do
        pool = Heddle::FiberPool.new(2, queue: 5_000)
        gate = Queue.new
        results = []
        2.times { pool.spawn { gate.pop } }
        2_000.times do |index|
          20.times { Object.new } &&
            Heddle.deadline(60 + index) { pool.spawn { results << [Heddle::Task.current.status, index] } }
        end
        GC.start
        begin
          if RUBY_VERSION < "3.2"
            GC.verify_compaction_references(double_heap: true, toward: :empty)
          else
            GC.verify_compaction_references(expand_heap: true, toward: :empty)
          end
        rescue ArgumentError, NotImplementedError, NoMethodError
          3.times { GC.compact }
        end
        2.times { gate << 1 }
        pool.wait
        p results == Array.new(2_000) { |index| [:running, index] }
      end
    RUBY
    assert_equal "true\n", out
  end

  private

  # Leaves holes between the objects, so that the GC has something to move.
  def churn
    Array.new(100) do |index|
      made = yield(index)
      Array.new(50) { +"filler" }
      made
    end
  end
end

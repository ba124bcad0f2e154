# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "heddle/simulation"

# Heddle.metrics: whether the numbers are right, belong to the whole process, and never fall.
class MetricsTest < Minitest::Test
  include LoopHelpers

  def setup = Heddle.measure_times = true

  def teardown = Heddle.measure_times = false

  def test_each_metric_says_what_it_is
    metrics = Heddle.metrics
    assert_equal metrics.count, metrics.map(&:name).uniq.size
    metrics.each do |metric|
      assert_match(/\Aheddle\.[a-z._]+\z/, metric.name)
      assert_includes %i[counter gauge histogram], metric.kind, metric.name
      assert_match(/\A(?:s|\{\w+\})\z/, metric.unit, metric.name)
      assert_match(/\A[A-Z].+[^.]\z/, metric.help, metric.name)
      metric.values.each do |labels, value|
        assert_operator labels.size, :<=, 1, metric.name
        assert_kind_of (metric.kind == :histogram) ? Heddle::Metrics::Distribution : Numeric, value, metric.name
      end
    end
    error = assert_raises(KeyError) { metrics["heddle.unknown"] }
    assert_match(/no metric "heddle.unknown": it has heddle\.tasks\.started, /, error.message)
  end

  def test_tasks_by_the_way_in_which_they_end
    before = value("heddle.tasks.ended")
    Heddle.run do
      failing = Heddle.spawn { raise "as planned" }
      assert_raises(RuntimeError) { failing.value }
      sleeping = Heddle.spawn { sleep }
      sleeping.cancel
      sleeping.wait
      pool = Heddle::FiberPool.new(1)
      running = pool.spawn { sleep }
      queued = pool.spawn { flunk }
      queued.cancel
      running.cancel
      running.wait
      assert_equal 1, value("heddle.tasks") # this one
    end
    ended = value("heddle.tasks.ended").to_h { |labels, count| [labels[:status], count - before.fetch(labels)] }
    assert_equal({"completed" => 1, "failed" => 1, "cancelled" => 2, "withdrawn" => 1}, ended)
    assert_equal 0, value("heddle.tasks")
  end

  def test_loops_of_all_threads_count_and_none_falls_when_it_closes
    counters = lambda do
      Heddle.metrics.select { |metric| metric.kind == :counter }.to_h { |metric| [metric.name, metric.values] }
    end
    before = counters.call
    gate = Thread::Queue.new
    inside = Thread::Queue.new
    threads = Array.new(2) do
      in_background do
        Heddle.run do
          10.times.map { Heddle.spawn { sleep(0.001) } }.each(&:wait)
          inside << true
          gate.pop
        end
      end
    end
    2.times { inside.pop }
    open = counters.call
    assert_operator value("heddle.loops"), :>=, 2
    2.times { gate << true }
    threads.each(&:value)
    closed = counters.call
    [before, open, closed].each_cons(2) do |earlier, later|
      later.each do |name, values|
        values.each { |labels, count| assert_operator count, :>=, earlier[name].fetch(labels, 0), "#{name} #{labels}" }
      end
    end
    assert_operator open["heddle.tasks.started"][{}] - before["heddle.tasks.started"][{}], :>=, 22
    assert_operator closed["heddle.task.waits"][{kind: "sleep"}] - before["heddle.task.waits"][{kind: "sleep"}], :>=, 20
  end

  # The clock of a simulation stands still while code runs, so all times are known.
  def test_waits_are_measured_by_kind_and_a_sleep_of_the_loop_is_no_run
    before = Heddle.metrics
    Heddle::Simulation.run(seeds: 1) do
      queue = Thread::Queue.new
      waiting = Heddle.spawn { queue.pop }
      Heddle.spawn { sleep(3) }
      sleep(2)
      queue << 1
      waiting.value
    end
    waits = since(before, "heddle.task.wait")
    assert_in_delta 5, waits.fetch("sleep").sum, 0.5
    assert_operator waits.fetch("sleep").count, :>=, 2
    assert_operator longer(waits.fetch("block"), 1.0), :>=, 1
    assert_operator since(before, "heddle.task.run").fetch(nil).sum, :<, 0.5
    assert_operator since(before, "heddle.loop.lag").fetch(nil).sum, :<, 0.5
  end

  # Else an idle loop would be a busy one until it wakes up.
  def test_a_loop_that_sleeps_counts_while_it_sleeps
    before = value("heddle.loop.slept")
    gate = Thread::Queue.new
    sleeping = in_background { Heddle.run { gate.pop } }
    wait_until(what: "its time") { value("heddle.loop.slept") > before + 0.05 }
    during = value("heddle.loop.slept")
    gate << true
    sleeping.value
    assert_operator value("heddle.loop.slept"), :>=, during
  end

  def test_a_task_that_computes_makes_others_wait_for_their_turn
    before = Heddle.metrics
    Heddle.run do
      late = Heddle.spawn { sleep(0.001) }
      compute(0.05)
      late.wait
      ready = Heddle.spawn { sleep(0) && compute(0.05) }
      sleep(0) until ready.ended?
    end
    assert_operator longer(since(before, "heddle.loop.lag").fetch(nil), 0.02), :>=, 2
    assert_operator longer(since(before, "heddle.task.run").fetch(nil), 0.02), :>=, 2
  end

  # Between two runs of a thread's own scheduler its code makes nobody wait.
  def test_code_outside_of_tasks_counts_only_while_somebody_waits
    in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      Heddle.spawn { sleep(0.001) }.wait
      before = Heddle.metrics
      compute(0.6)
      Heddle.spawn { sleep(0.001) }.wait
      assert_equal 0, longer(since(before, "heddle.task.run").fetch(nil), 0.5)
    end
  end

  def test_pools_have_their_use_and_their_waits
    before = Heddle.metrics
    Heddle.run do
      semaphore = Heddle::Semaphore.new(3)
      pool = Heddle::ResourcePool.new(size: 1) { Object.new }
      gate = Thread::Queue.new
      holders = [Heddle.spawn { semaphore.acquire { gate.pop } }, Heddle.spawn { pool.with { gate.pop } }]
      waiter = Heddle.spawn { pool.with { nil } }
      fibers = Heddle::FiberPool.new(2)
      3.times { fibers.spawn { gate.pop } }
      assert_operator value("heddle.pool.used", pool: "Heddle::Semaphore"), :>=, 1
      assert_operator value("heddle.pool.permits", pool: "Heddle::Semaphore"), :>=, 3
      assert_equal [1, 1], use_since(before, "Heddle::ResourcePool")
      assert_equal [2, 1], use_since(before, "Heddle::FiberPool")
      5.times { gate << true }
      [*holders, waiter].each(&:wait)
      fibers.wait
      assert_equal [0, 0], use_since(before, "Heddle::ResourcePool")
    end
    assert_equal 1, since(before, "heddle.pool.wait").fetch("Heddle::ResourcePool").count
  end

  def test_collected_pools_count_no_more
    uses = assert_child(<<~RUBY)
      used = ->(of) { Heddle.metrics["heddle.pool.permits"].values.fetch({pool: of}, 0) }
      GC.start
      before = [used["Heddle::Semaphore"], used["Heddle::FiberPool"]]
      kept = Array.new(1000) { [Heddle::Semaphore.new(7), Heddle::FiberPool.new(5)] }
      p used["Heddle::Semaphore"] > before[0] && used["Heddle::FiberPool"] > before[1]
      kept.clear
      200.times { 100.times { Object.new } && GC.start }
      p used["Heddle::Semaphore"] < 1000, used["Heddle::FiberPool"] < 1000
    RUBY
    assert_equal %w[true true true], uses.split
  end

  def test_worker_threads_that_run_a_block_count
    gate = Thread::Queue.new
    Heddle.run do
      offloading = Heddle.spawn { Heddle.offload { gate.pop } }
      wait_until(what: "the worker thread") { value("heddle.workers.busy", workers: "offload") == 1 }
      gate << true
      offloading.wait
      wait_until(what: "its end") { value("heddle.workers.busy", workers: "offload") == 0 }
    end
  end

  def test_worker_threads_of_another_purpose_meanwhile
    name = "heddle meanwhile"
    Heddle.run { Heddle.offload { nil } }
    workers = Heddle::Metrics::WORKERS.each_value.first
    workers.define_singleton_method(:use) { self.class.new(name, 1) && super() }
    Heddle.metrics
    assert_equal 0, value("heddle.workers.busy", workers: "meanwhile")
  ensure
    workers&.singleton_class&.remove_method(:use)
    Heddle::Metrics::WORKERS.delete(name)
  end

  def test_names_count_by_their_outcome
    before = Heddle.metrics
    Heddle.run do
      assert_raises(SocketError) { Addrinfo.getaddrinfo("no-such-name.invalid", 80, nil, :STREAM) }
    end
    assert_equal 1, change(before, "heddle.names.resolved", outcome: "failed")
  end

  def test_a_child_of_fork_begins_with_zeros
    lines = assert_child(<<~RUBY).lines(chomp: true)
      Heddle.measure_times = true
      Heddle.run { 10.times.map { Heddle.spawn { sleep(0.001) } }.each(&:wait) }
      numbers = -> do
        metrics = Heddle.metrics
        [metrics["heddle.tasks.started"].values[{}], metrics["heddle.loop.lag"].values[{}].count,
         metrics["heddle.loop.system_calls"].values[{}]]
      end
      Process.wait(fork { p numbers.call; Heddle.run { sleep(0.001) }; p Heddle.measure_times?, numbers.call[0] })
      Heddle.run do
        Process.wait(fork { p numbers.call })
      end
      p numbers.call[0] >= 12
    RUBY
    assert_equal ["[0, 0, 0]", "true", "1", "[0, 0, 0]", "true"], lines
  end

  # Turning times on and off in the middle of everything, from another thread.
  def test_times_may_be_turned_on_and_off_at_any_moment
    stop = false
    switching = in_background do
      until stop
        Heddle.measure_times = false
        Heddle.measure_times = true
        Thread.pass
      end
    end
    Heddle.run do
      tasks = 20.times.map { Heddle.spawn { 100.times { |i| sleep(i.even? ? 0 : 0.0001) } } }
      tasks.each(&:wait)
    end
    stop = true
    switching.value
    assert_operator Heddle.metrics["heddle.loop.lag"].values[{}].sum, :<, 1000
    assert_operator Heddle.metrics["heddle.task.wait"].values.sum { |_, each| each.sum }, :<, 10_000
  end

  def test_under_gc_stress_and_compaction
    assert_child(<<~RUBY)
      Heddle.measure_times = true
      Heddle.run do
        semaphore = Heddle::Semaphore.new(1)
        GC.stress = true
        3.times.map { Heddle.spawn { semaphore.acquire { sleep(0.0001) } } }.each(&:wait)
        Heddle.metrics.to_a
        GC.stress = false
        GC.compact if GC.respond_to?(:compact)
        3.times.map { Heddle.spawn { semaphore.acquire { sleep(0.0001) } } }.each(&:wait)
        exit!(1) unless Heddle.metrics["heddle.tasks.started"].values[{}] == 7
      end
    RUBY
  end

  private

  def value(name, labels = nil, **more)
    values = Heddle.metrics[name].values
    labels = more unless more.empty?
    return values.fetch(labels, 0) if labels

    (values.keys == [{}]) ? values.fetch({}) : values
  end

  def change(before, name, **labels)
    Heddle.metrics[name].values.fetch(labels, 0) - before[name].values.fetch(labels, 0)
  end

  def use_since(before, pool) = %w[used waiting].map { |of| change(before, "heddle.pool.#{of}", pool: pool) }

  # What a histogram counted since then, by the value of its label, or nil.
  def since(before, name)
    none = Heddle::Metrics::Distribution.new([0] * (Heddle::Metrics::BOUNDS.size + 1), 0, 0.0)
    Heddle.metrics[name].values.to_h do |labels, now|
      then_ = before[name].values.fetch(labels, none)
      counts = now.counts.zip(then_.counts).map { |later, earlier| later - earlier }
      [labels.values.first, Heddle::Metrics::Distribution.new(counts, now.count - then_.count, now.sum - then_.sum)]
    end
  end

  # How many were longer than this bound.
  def longer(distribution, bound)
    distribution.counts.drop(Heddle::Metrics::BOUNDS.index(bound) + 1).sum
  end

  def compute(seconds)
    nil while monotonic < (@until ||= monotonic + seconds)
    @until = nil
  end
end

# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "heddle/active_job"

# A reload of classes in development, by ActiveSupport's own reloader: it waits for whatever runs, as it does among
# threads, and whatever comes later waits for it.
class UnmodifiedReloadTest < UnmodifiedTestCase
  # As Rails registers it where classes are reloaded.
  module InterlockHook
    def self.run = ActiveSupport::Dependencies.interlock.start_running

    def self.complete(_state) = ActiveSupport::Dependencies.interlock.done_running
  end

  def setup
    super
    active_record(isolation: :fiber, least: "7.1")
    require "active_support/all"
    ActiveRecord::Base.connection_handler # loads it
    @changed = false
    @seen = []
    @executor = Class.new(ActiveSupport::Executor)
    @executor.register_hook(InterlockHook, outer: true)
    @reloader = Class.new(ActiveSupport::Reloader)
    @reloader.executor = @executor
    @reloader.check = -> { @changed }
    test = self
    @reloader.to_run(prepend: true) { class_unload! { test.reload } }
  end

  def teardown
    leave_active_record
    super
  end

  def reload
    @changed = false
    @seen << :reload
  end

  def test_a_reload_waits_for_running_tasks_and_later_ones_wait_for_it
    Heddle.run do
      pool = Heddle::FiberPool.new(9)
      gate = Thread::Queue.new
      running = Array.new(3) { |i| pool.spawn { work(i) { gate.pop } } }
      later = change { Array.new(3) { |i| pool.spawn { work(i + 3) { :at_once } } } }
      assert_empty @seen
      3.times { gate << true }
      (running + later).each(&:value)
      assert_equal [0, 1, 2, :reload, 3, 4, 5], @seen
    end
  end

  def test_what_a_job_starts_does_not_wait_for_a_reload_that_waits_for_the_job
    Heddle.run do
      gate = Thread::Queue.new
      job = Heddle.spawn do
        work(:job) do
          gate.pop
          assert_equal 5, within_all_that_a_job_starts.uniq.sum
        end
      end
      later = change { Heddle.spawn { work(:later) } }
      gate << true
      [job, later].each(&:value)
    end
    assert_equal %i[job reload later], @seen
  end

  def test_what_a_thread_starts_does_not_wait_for_a_reload_that_waits_for_the_thread
    gate, ready = Array.new(2) { Thread::Queue.new }
    thread = Thread.new do
      work(:thread) do
        ready << gate.pop
        assert_equal 5, Heddle.run { within_all_that_a_job_starts }.uniq.sum
      end
    end
    Heddle.run do
      later = change { Heddle.spawn { work(:later) } }
      gate << true
      later.value
    end
    thread.value
    assert_equal %i[thread reload later], @seen
  end

  def test_a_reload_waits_for_a_task_that_has_outlived_its_job
    Heddle.run do
      gate = Thread::Queue.new
      task = nil
      Heddle.spawn { work(:job) { task = Heddle.spawn { @executor.wrap { gate.pop && @seen << :task } } } }.value
      later = change { Heddle.spawn { work(:later) } }
      assert_equal %i[job], @seen
      gate << true
      [task, later].each(&:value)
    end
    assert_equal %i[job task reload later], @seen
  end

  def test_a_task_that_is_cancelled_while_it_waits_to_reload_holds_nothing
    Heddle.run do
      gate = Thread::Queue.new
      job = Heddle.spawn { work(:job) { gate.pop } }
      later = change { Heddle.spawn { work(:later) } }
      later.cancel.wait
      gate << true
      job.value
      work(:last)
      assert_equal %i[job reload last], @seen
    end
  end

  def test_jobs_of_the_adapter_are_waited_for
    adapter = ActiveJob::QueueAdapters::HeddleAdapter.new(fibers: 5)
    gate = Thread::Queue.new
    test = self
    job = Class.new(ActiveJob::Base) do
      self.logger = nil
      self.queue_adapter = adapter
      define_method(:perform) { |name| test.work(name) { gate.pop unless name == "later" } }
    end
    self.class.const_set(:ReloadedJob, job)
    2.times { job.perform_later("running") }
    change(2) { job.perform_later("later") }
    assert_empty @seen
    2.times { gate << true }
    adapter.shutdown
    assert_equal ["running", "running", :reload, "later"], @seen
  ensure
    self.class.send(:remove_const, :ReloadedJob) if job
  end

  # A unit of work, with a name.
  def work(name)
    @reloader.wrap do
      yield if block_given?
      @seen << name
    end
  end

  private

  # Calls the block, which starts work, once something runs and the files have changed. Returns when it waits to reload.
  def change(count = 1)
    wait_until(what: "what runs") { state(:sharing).size >= count }
    @changed = true
    value = yield
    wait_until(what: "the wait for the reload") { state(:waiting).any? }
    value
  end

  def state(kind)
    ActiveSupport::Dependencies.interlock.raw_state do |holders|
      holders.values.reject { |holder| [nil, 0, false].include?(holder[kind]) }
    end
  end

  def within_all_that_a_job_starts
    pool = Heddle::FiberPool.new(2)
    [
      @executor.wrap { 5 }, Heddle.spawn { @executor.wrap { 5 } }.value,
      Heddle.run { Heddle.spawn { @executor.wrap { 5 } }.value },
      pool.map([5]) { |five| @executor.wrap { five } }.first,
      Enumerator.new { |yielder| yielder << @executor.wrap { 5 } }.next,
      Heddle.spawn { Heddle.spawn { @executor.wrap { 5 } }.value }.value
    ]
  end
end

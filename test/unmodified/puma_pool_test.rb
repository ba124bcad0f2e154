# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "heddle/puma"

runs_on rubies: :ends, also: %i[oldest_puma]

# The pool that plugin :heddle gives Puma, alone: its work are blocks.
class PumaPoolTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  TaskPool = Heddle::PumaSupport.const_get(:TaskPool)

  # What the thread that accepts connections asks.
  def test_a_loop_that_computes_is_busy
    with_pool do |pool|
      stop = false
      pool << -> { Thread.pass until stop }
      wait_until(what: "the work") { pool.backlog.zero? }
      assert_within(10, at_least: 0.3, remeasure: 0) { pool.wait_for_less_busy_worker(0.3) }
      in_background { sleep(0.05) && stop = true }
      assert_within(5, remeasure: 0) { pool.wait_for_less_busy_worker(60) }
    end
  end

  # It polls between turns, and releases the GVL for that. No end of a request tells when it sleeps again.
  def test_a_loop_whose_tasks_take_turns_is_busy
    with_pool do |pool|
      stop = false
      pool << -> { (sleep(0) until stop) || sleep }
      wait_until(what: "the work") { pool.backlog.zero? }
      assert_within(10, at_least: 0.3, remeasure: 0) { pool.wait_for_less_busy_worker(0.3) }
      in_background { sleep(0.05) && stop = true }
      assert_within(5, remeasure: 0) { pool.wait_for_less_busy_worker(60) }
    end
  end

  def test_a_loop_whose_tasks_wait_is_not_busy
    with_pool do |pool|
      3.times { pool << -> { sleep } }
      wait_until(what: "the work") { pool.backlog.zero? }
      assert_within(5, remeasure: 0) { pool.wait_for_less_busy_worker(60) }
      assert_equal [3, 3, 97], [pool.spawned, pool.busy_threads, pool.pool_capacity]
    end
  end

  # A request begins behind all that are ready: so few are under way where the processor is busy, whatever the limit.
  # Otherwise all would, and each take as long as all together.
  def test_a_busy_loop_begins_no_more_than_it_can_serve
    with_pool do |pool|
      under_way = most = 0
      ended = Thread::Queue.new
      work = lambda do
        most = [most, under_way += 1].max
        3.times { sleep(0) } # ready, but behind the others
        under_way -= 1
        ended << true
      end
      100.times { pool << work }
      100.times { ended.pop }
      assert_operator most, :<, 20
    end
  end

  # Otherwise each step of those that accept connections and read requests would take a time slice of Ruby's, which is
  # a hundred pieces of this work.
  def test_a_loop_that_always_computes_lets_other_threads_go_on
    with_pool do |pool|
      stop = false
      done = 0
      work = lambda do
        compute(0.001)
        done += 1
        pool << work unless stop
      end
      pool << work
      reader, writer = IO.pipe
      writer << "x"
      30.times { IO.select([reader], nil, nil, 0) }
      stop = true
      assert_operator done, :<, 1000
    end
  end

  def test_a_second_thread_begins_what_the_first_one_cannot
    with_pool(threads: 2) do |pool|
      stop = false
      done = Thread::Queue.new
      pool << -> { nil until stop }
      wait_until(what: "the work") { pool.backlog.zero? }
      20.times { |i| pool << -> { sleep(0.001) && done << i } }
      assert_equal (0...20).to_a, Array.new(20) { done.pop }.sort
      stop = true
    end
  end

  def test_hooks_run_for_each_thread
    hooks = []
    options = %i[before_thread_start before_thread_exit].to_h { |name| [name, [hook { hooks << name }]] }
    with_pool(threads: 2, **options) { |pool| pool << -> {} }
    assert_equal [:before_thread_start] * 2 + [:before_thread_exit] * 2, hooks
  end

  def test_a_watch_for_stalls_ends_with_its_thread
    with_pool(heddle_stall: 0.02) do |pool|
      threads = Thread::Queue.new
      pool << -> { sleep if threads << Thread.current }
      threads.pop.kill
      pool << -> { threads << Thread.current }
      threads.pop
      wait_until(what: "the end of the first watch") { watches == 1 }
    end
    wait_until(what: "the end of the second watch") { watches == 0 }
  end

  def test_a_log_that_fails_does_not_end_the_watch_for_stalls
    reports = Thread::Queue.new
    log = Object.new
    log.define_singleton_method(:log) { |line| reports << line && raise(IOError, "closed stream") }
    said = stderr_of do
      with_pool(heddle_stall: 0.02, log_writer: log) do |pool|
        2.times do
          stop = false
          pool << -> { nil until stop }
          wait_until(what: "a report") { reports.pop(true) rescue nil } # rubocop:disable Style/RescueModifier
          stop = true
        end
      end
    end
    assert_match(/a stall of .* s could not be reported: closed stream \(IOError\)/, said)
  end

  def test_an_error_ends_no_other_work
    done = Thread::Queue.new
    _, err = capture_io do
      with_pool do |pool|
        pool << -> { raise Exception, "a fault" } # rubocop:disable Lint/RaiseException -- Puma's own rescues the rest
        pool << -> { done << true }
        wait_until(what: "the other work") { !done.empty? }
      end
    end
    assert_equal "Error reached top of thread-pool: a fault (Exception)\n", err
  end

  # A request may follow on a connection as the pool shuts down; a connection that arrives then would be lost.
  def test_only_its_own_tasks_add_work_while_it_shuts_down
    done = Thread::Queue.new
    with_pool do |pool|
      began = Thread::Queue.new
      go = Thread::Queue.new
      pool << lambda do
        began << true
        go.pop
        pool << -> { done << true }
      end
      began.pop
      stopping = in_background { pool.shutdown }
      wait_until(what: "the shutdown") { refuses?(pool) }
      go << true
      stopping.value
      assert_equal 1, done.size
    end
  end

  # Without a locale, Ruby takes the path of the program for US-ASCII.
  def test_an_error_of_a_thread_is_printed_whatever_its_encodings
    error = RuntimeError.new("größer")
    error.set_backtrace(["/größe.rb:1", "/größe.rb:2"].map { |line| line.dup.force_encoding(Encoding::US_ASCII) })
    said = stderr_of { with_pool { |pool| pool.thread_failed(error) } }.dup.force_encoding(Encoding::UTF_8)
    assert_match(/\Aheddle: the requests of a thread were cancelled: .*größer/, said)
    assert_match(%r{from /größe\.rb:2\n}, said)
  end

  private

  def watches = Thread.list.count { |thread| thread.name == "heddle stall watch" }

  def compute(seconds)
    finish = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
    nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < finish
  end

  # Puma 7 has the hooks in Hashes.
  def hook(&block) = (Puma::Const::VERSION < "7") ? block : {block: block}

  def refuses?(pool)
    pool << -> {}
    false
  rescue RuntimeError
    true
  end

  def with_pool(threads: 1, **options)
    defaults = {min_threads: 0, max_threads: 100, heddle_threads: threads, pool_shutdown_grace_time: 0.01}
    pool = Puma::ThreadPool.new("test", {**defaults, **options}) { |client| client.call }
    assert_instance_of TaskPool, pool
    yield pool
  ensure
    pool&.shutdown(0)
  end
end

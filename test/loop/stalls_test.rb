# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "digest"
require "logger"
require "stringio"
require "tempfile"
require "zlib"

# Heddle.watch_stalls: which code kept a loop, and why.
class StallsTest < Minitest::Test
  include LoopHelpers

  LIMIT = 0.05
  TEXT = "x" * 40_000_000
  TRIES = 5 # of which one must have had a processor

  def setup
    @reports = Thread::Queue.new
  end

  def teardown
    @watch&.stop
    Heddle::StallWatch.settle(1.0)
  end

  def test_ruby_code_that_computes
    stall = assert_stall(:ruby, /compute/) { compute(0.12) }
    assert_includes stall.task, "\"guilty\""
    assert_equal "main thread", stall.thread
    assert_kind_of Float, stall.gc
  end

  def test_methods_in_c_that_return_at_once_are_ruby_code
    assert_stall(:ruby, /#{__method__}/) { 1000.times { |number| number.to_s } until passed?(0.12) }
  end

  def test_time_of_allocations_is_not_gcs
    assert_stall(:ruby, /#{__method__}/) do
      [Time.now, +"a"] until passed?(0.12)
    end
  end

  def test_a_digest
    assert_stall(:native, /Digest/) { Digest::SHA256.hexdigest(TEXT) }
  end

  def test_zlib
    assert_stall(:native, /Zlib.deflate/) { Zlib.deflate(TEXT) }
  end

  def test_a_regular_expression_that_backtracks
    text = "#{"a" * 28}b"
    assert_stall(:native, /match?/) { text.match?(/\A(a|aa)+\1\z/) }
  end

  def test_a_query_of_the_gem_sqlite3
    require "sqlite3"
    database = SQLite3::Database.new(":memory:")
    query = "with recursive t(n) as (select 1 union all select n + 1 from t where n < 1500000) select count(*) from t"
    assert_stall(:native, /SQLite3/) { database.execute(query) }
  end

  def test_gc
    heap = Array.new(600_000) { Object.new }
    stall = assert_stall(:gc, /GC.start/) { 4.times { GC.start } }
    assert_operator stall.gc, :>=, 0.01
    assert_equal 600_000, heap.size
  end

  def test_a_lock_of_a_file
    Tempfile.create("heddle") do |file|
      assert_stall(:blocked, /flock/) do
        holder = holder_of(file.path, 0.3)
        file.flock(File::LOCK_EX)
        file.flock(File::LOCK_UN)
        Process.wait(holder)
      end
    end
  end

  def test_a_thread_that_has_the_gvl
    assert_thread_is_named
  end

  def test_one_thread_of_many_that_has_the_gvl
    others = 70.times.map { Thread.new { sleep } }
    assert_thread_is_named
  ensure
    others&.each(&:kill)
  end

  def test_a_process_that_was_stopped
    stall = assert_stall(:kernel, /compute/) do
      stopper = Process.spawn("sh", "-c", "sleep 0.05; kill -STOP #{Process.pid}; sleep 0.4; kill -CONT #{Process.pid}")
      compute(0.1)
      Process.wait(stopper)
    end
    assert_operator stall.seconds, :>=, LIMIT
  end

  def test_a_plain_thread_that_computes_beyond_its_deadline
    @watch = watch
    thread = Thread.new do
      Heddle.deadline(0.02) { compute(1) }
    rescue Heddle::DeadlineExceeded
      nil
    end
    thread.name = "late"
    thread.join
    stall = next_report { |each| each.reason == :deadline }
    assert_equal ["thread \"late\"", nil], [stall.thread, stall.task]
    assert_operator stall.seconds, :>=, LIMIT
    assert_match(/compute/, stall.backtrace.join)
  end

  def test_a_trap_handler_that_computes
    previous = trap("USR2") { compute(0.15) }
    @watch = watch
    Heddle.run do
      Process.kill("USR2", Process.pid)
      5.times { sleep(0.01) }
    end
    assert(next_report { |stall| stall.backtrace.join.match?(/compute/) })
  ensure
    trap("USR2", previous)
  end

  def test_who_waited
    @watch = watch
    Heddle.run do
      readable, writable = IO.pipe
      Heddle.spawn(name: "timer") { sleep(0.02) }
      Heddle.spawn(name: "reader") { readable.read(1) }
      Heddle.spawn(name: "writer") do
        writable.write("x")
        compute(0.2)
        sleep(0.01)
      end
    end
    stall = next_report { |each| each.task.to_s.include?("\"writer\"") }
    names = stall.waiters.map(&:first).join
    assert_includes names, "\"timer\""
    assert_includes names, "\"reader\""
    assert_operator stall.waited, :>=, 2
    assert_equal stall.waiters.map(&:last).sort.reverse, stall.waiters.map(&:last)
  end

  def test_no_report_is_shorter_than_the_limit
    @watch = watch
    Heddle.run { 60.times { |turn| Heddle.spawn { compute(0.002 * turn) } } }
    Heddle::StallWatch.settle(1.0)
    lengths = Array.new(@reports.size) { @reports.pop.seconds }
    refute_empty lengths
    assert_operator lengths.min, :>=, LIMIT
  end

  def test_a_place_is_reported_once_a_second
    @watch = watch
    Heddle.run { compute(0.1) }
    stall = next_report
    given = []
    other = Heddle::StallWatch.new(LIMIT, given.method(:<<))
    3.times { other.report(stall) }
    assert_equal [1], given.map(&:count)
    assert_operator other.due_in, :<=, 1.0
    wait_until { other.due_in.zero? }
    other.report_due
    assert_equal [1, 2], given.map(&:count)
    assert_equal stall.seconds, given.last.seconds
  end

  def test_what_a_block_raises_is_printed
    name = Object.new
    def name.to_s = raise("no name")
    seen = Thread::Queue.new
    _, errors = capture_io do
      @watch = Heddle.watch_stalls(LIMIT) do |stall|
        seen << stall
        raise "the block"
      end
      2.times do
        Heddle.run do
          task = Heddle.spawn do
            sleep(0)
            compute(0.1)
          end
          task.define_singleton_method(:name) { raise "no name" }
        end
        assert_match(/\Atask \d+\z/, pop(seen).task)
        sleep(1.1)
      end
    end
    assert_match(/the report of a stall failed: RuntimeError: the block/, errors)
  end

  def test_a_slow_report_loses_none_in_silence
    seen, go_on = Thread::Queue.new, Thread::Queue.new
    _, errors = capture_io do
      @watch = Heddle.watch_stalls(0.01) { |stall| (seen << stall) && go_on.pop }
      Heddle.run { compute(0.05) }
      pop(seen)
      Heddle.run { 2.times { Heddle.spawn { 50.times { sleep(0) && compute(0.02) } } } }
      go_on.close
      wait_until(20, what: "the report of the lost ones") { $stderr.string.include?("are not reported") }
    end
    assert_match(/^heddle: \d+ stalls are not reported: more came than/, errors)
  end

  def test_a_simulations_clock_jumps
    outcome = in_child(<<~RUBY, env: {"HEDDLE_WATCH_STALLS" => "0.05"})
      require "heddle/simulation"
      Heddle::Simulation.run(seeds: 1) { 3.times { Heddle.spawn { 5.times { sleep(2) } } } }
      puts "ended"
    RUBY
    assert_equal ["ended\n", ""], [outcome.out, outcome.err]
  end

  def test_two_watches
    long = Thread::Queue.new
    second = Heddle.watch_stalls(0.6) { |stall| long << stall }
    @watch = watch
    Heddle.run { compute(0.1) }
    assert_operator next_report.seconds, :>=, LIMIT
    Heddle.run { compute(0.8) }
    assert_operator pop(long).seconds, :>=, 0.6
    @watch.stop
    assert_equal [true, false], [@watch.stopped?, second.stopped?]
    Heddle.run { compute(0.7) }
    Heddle::StallWatch.settle(1.0)
  ensure
    second&.stop
  end

  def test_a_trap_handler_may_stop_the_watch
    @watch = watch
    previous = trap("USR2") { @watch.stop }
    Heddle.run do
      Heddle.spawn { compute(0.1) }
      Process.kill("USR2", Process.pid)
      wait_until { @watch.stopped? }
    end
    assert_nil @watch.stop
  ensure
    trap("USR2", previous)
  end

  def test_during_reports_before_it_returns
    reports = []
    value = Heddle.watch_stalls(LIMIT) { |stall| reports << stall }.during do
      Heddle.run { compute(0.1) || :value }
    end
    assert_equal :value, value
    refute_empty reports
    assert_raises(KeyError) { Heddle.watch_stalls(LIMIT).during { raise KeyError } }
  end

  def test_children_have_the_watch
    @watch = Heddle.watch_stalls(LIMIT, to: io = StringIO.new)
    output = forked do
      io.truncate(io.rewind)
      Heddle.run { Heddle.spawn(name: "child's") { compute(0.1) } }
      Heddle::StallWatch.settle(1.0)
      io.string
    end
    assert_match(/"child's"/, output)
    output = Heddle.run do # the child goes on in the middle of a parent's turn
      forked do
        io.truncate(io.rewind)
        compute(0.1)
        Thread.new { Heddle.run { compute(0.1) } }.join
        Heddle::StallWatch.settle(1.0)
        io.string
      end
    end
    assert_match(/compute/, output)
  end

  def test_nothing_ends_the_sleeps_of_the_block
    begun = Thread::Queue.new
    awake = false
    @watch = Heddle.watch_stalls(LIMIT) do
      next if awake

      begun << Thread.current
      sleep
      awake = true
    end
    Heddle.run { compute(0.1) }
    reporter = pop(begun)
    wait_until(what: "the block's sleep") { reporter.stop? }
    Heddle.run { compute(0.1) }
    Heddle::StallWatch.settle(0.05)
    refute awake
  ensure
    @watch&.stop
    wait_until(what: "the end of the block") { awake || (reporter&.wakeup && false) }
  end

  def test_a_fork_while_a_report_is_made
    @watch = watch
    Heddle.run { compute(0.1) }
    stall = next_report
    begun, over = Thread::Queue.new, Thread::Queue.new
    other = Heddle::StallWatch.new(LIMIT, ->(one) { one.count > 1 && (begun << one) && over.pop })
    3.times { other.report(stall) }
    other.stop
    reporter = Thread.new { other.report_due }
    pop(begun)
    output = forked do
      other.forked
      other.report(stall)
      "reported"
    end
    assert_equal "reported", output
  ensure
    over&.push(nil)
    reporter&.join
  end

  # Ruby would crash in its last GC, were the other one watching again.
  def test_a_thread_that_the_end_of_the_program_kills_stops_one_of_two_watches
    assert_child(<<~RUBY)
      one, _ = Array.new(2) { Heddle.watch_stalls(0.05) { nil } }
      ready = Thread::Queue.new
      Thread.new do
        ready << true
        sleep
      ensure
        one.stop
      end
      ready.pop
    RUBY
  end

  def test_where_reports_go
    log, plain = StringIO.new, StringIO.new
    watches = [Heddle.watch_stalls(LIMIT, to: Logger.new(log)), Heddle.watch_stalls(LIMIT, to: plain)]
    Heddle.run { Heddle.spawn(name: "x") { compute(0.1) } }
    watches.each(&:stop)
    Heddle::StallWatch.settle(1.0)
    assert_match(/WARN.*a stall of 0\.\d+ s: \S.* task \d+ "x" on main thread/, log.string)
    assert_match(/\Aheddle: a stall of .*\n    from .*compute/, plain.string)
    assert_raises(ArgumentError) { Heddle.watch_stalls(LIMIT, to: 1) }
    assert_raises(ArgumentError) { Heddle.watch_stalls(LIMIT, to: plain) { nil } }
  end

  def test_notifications
    require "heddle/notifications"
    seen = Thread::Queue.new
    subscriber = ActiveSupport::Notifications.subscribe("stall.heddle") { |event| seen << event }
    @watch = Heddle.watch_stalls(LIMIT, to: ActiveSupport::Notifications)
    Heddle.run { compute(0.1) }
    event = pop(seen)
    assert_in_delta event.payload[:stall].seconds * 1000, event.duration, 5
  ensure
    ActiveSupport::Notifications.unsubscribe(subscriber) if subscriber
  end

  # Without the events of statements, which cost each statement something.
  def test_notifications_of_stalls_alone
    assert_equal "false\n", assert_child(<<~RUBY, gems: true)
      require "active_support"
      require "active_support/notifications"
      Heddle.watch_stalls(0.05, to: ActiveSupport::Notifications)
      p $LOADED_FEATURES.any? { |file| file.end_with?("heddle/notifications.rb") }
    RUBY
  end

  def test_the_limit
    [0, 0.001, -1, Float::NAN, Float::INFINITY, nil, "1"].each do |limit|
      assert_match(/at least 0\.01 seconds/, assert_raises(ArgumentError) { Heddle.watch_stalls(limit) }.message)
    end
  end

  def test_the_environment
    program = <<~RUBY
      require "heddle/run" # a part of Heddle
      Heddle.run { limit = Heddle::Clock.now + 0.2; nil until Heddle::Clock.now > limit }
      puts :ended
    RUBY
    outcome = in_child(program, heddle: false, env: {"HEDDLE_WATCH_STALLS" => "0.05"})
    assert_match(/\Aheddle: a stall of 0\.\d+ s: /, outcome.err)
    {"soon" => /HEDDLE_WATCH_STALLS=soon: invalid value for Float/, "0" => /at least 0\.01 seconds/}
      .each do |limit, message|
        outcome = in_child(program, heddle: false, env: {"HEDDLE_WATCH_STALLS" => limit})
        assert_equal "ended\n", outcome.out
        assert_match message, outcome.err
      end
  end

  # A signal that the program uses is neither sent nor taken.
  def test_signals_of_the_program
    skip "only Linux's threads get signals" if portable_build?
    used = []
    previous = trap("URG") { used << 1 }
    @watch = watch
    assert_equal "WINCH", Heddle::StallWatch.signal
    winch = trap("WINCH") { used << 2 }
    assert_nil Heddle::StallWatch.signal
    Heddle.run { compute(0.1) }
    assert_kind_of Heddle::Stall, next_report
    @watch.stop
    assert_empty used
    assert_equal [2], trap("WINCH", winch || "DEFAULT").call
  ensure
    trap("URG", previous || "DEFAULT")
    trap("WINCH", "DEFAULT")
  end

  def test_the_signal_is_given_back
    skip "only Linux's threads get signals" if portable_build?
    watch.stop
    status = File.read("/proc/self/status")
    caught = status[/^SigCgt:\s+(\h+)/, 1].to_i(16)
    assert_equal 0, caught[Signal.list["URG"] - 1]
  end

  # Frames are kept alive until they are reported, and do not move.
  def test_gc_at_random_and_signals_at_random
    @watch = watch
    previous = trap("USR2") { nil }
    noise = Process.spawn("ruby", "-e", <<~RUBY)
      200.times { Process.kill(%w[URG USR2 WINCH].sample, #{Process.pid}); sleep(rand * 0.01) }
    RUBY
    Heddle.run do
      6.times do
        Heddle.spawn do
          self.class.define_method(:passing) { compute(0.06) }
          passing
          self.class.remove_method(:passing)
          GC.respond_to?(:compact) ? GC.compact : GC.start
        end
      end
    end
    Process.wait(noise)
    assert_kind_of Heddle::Stall, next_report
  ensure
    trap("USR2", previous)
  end

  # The watcher rests while there is no loop, and a loop that begins wakes it: its first turn may be the one that lasts.
  def test_the_first_turn_of_a_loop_after_a_long_rest
    seen = []
    TRIES.times do
      @watch = Heddle.watch_stalls(0.01) { |stall| seen << stall }
      sleep(0.5) # five times as long as it takes to rest
      Heddle.run { compute(0.1) && sleep(0.001) }
      @watch.stop
      Heddle::StallWatch.settle(1.0)
      return if seen.any? { |stall| stall.backtrace.join.match?(/compute/) }
    end
    flunk("not where it computed, but #{seen.join("\n")}")
  end

  # The loop wakes who waits for its reports: a thread that was killed, here, and replaced by none yet.
  def test_a_reporting_thread_that_was_killed_and_collected
    assert_equal "done", assert_child(<<~RUBY)
      def compute(seconds) = Time.now.then { |start| nil until Time.now - start >= seconds }
      def deep(levels) = levels.zero? ? nil : deep(levels - 1) # leaves nothing on the stack
      def reporter = Thread.list.find { |thread| thread.name == "heddle stalls" && thread.stop? }
      def kill_reporter
        Thread.new do
          Heddle.watch_stalls(0.02) { nil }
          sleep(0.01) until reporter
          sleep(0.05) # it may have stopped on its way to where it waits
          reporter.kill.join
        end.join
        nil
      end
      kill_reporter
      Heddle::StallWatch.instance_variable_set(:@reporter, nil)
      deep(1000)
      4.times { GC.start }
      objects = Array.new(200_000) { "a" * 10 }
      Heddle.run { Heddle.spawn { compute(0.1) }.wait }
      print "done" if objects
    RUBY
  end

  def test_deadlocks_are_still_found
    outcome = in_child(<<~RUBY)
      Heddle.watch_stalls(0.05)
      begin
        Heddle.run { Thread::Queue.new.pop }
      rescue Heddle::Deadlock => error
        puts error.class
      end
      Thread::Queue.new.pop
    RUBY
    assert_equal "Heddle::Deadlock\n", outcome.out
    assert_match(/No live threads left/, outcome.err)
  end

  private

  def compute(seconds)
    start = monotonic
    number = 0
    until monotonic - start >= seconds
      number += 1 until number % 20_000 == 19_999
      number += 1
    end
    nil
  end

  # Whether so many seconds are over since the turn began.
  def passed?(seconds) = monotonic - @began >= seconds

  def watch = Heddle.watch_stalls(LIMIT) { |stall| @reports << stall }

  def pop(queue) = wait_until(20, what: "a report") { !queue.empty? && queue.pop }

  # Beside a busy machine there are others before the one that is meant.
  def next_report
    loop do
      stall = pop(@reports)
      return stall if !block_given? || yield(stall)
    end
  end

  # A stall of the block, in a task, for that reason and at that place. Beside a busy machine the block may be kept by
  # something else first.
  def assert_stall(reason, place)
    seen = []
    TRIES.times do
      seen.concat(stalls_of { yield })
      found = seen.find { |stall| stall.reason == reason && stall.backtrace.join("\n").match?(place) }
      return found if found
    end
    busy = seen.find { |stall| stall.reason == :kernel && stall.cpu.to_f < stall.seconds / 2 }
    flunk("no #{reason} at #{place}, but #{seen.join("\n")}") unless busy
    busy
  end

  def assert_thread_is_named
    stall = assert_stall(:gvl, /compute/) do
      thread = Thread.new { compute(0.5) }
      thread.name = "the other"
      sleep(0.01) until passed?(0.6)
      thread.join
    end
    assert_match(/\Athread ("the other"|\d+)\z/, stall.culprit) if stall.reason == :gvl
  end

  def stalls_of
    GC.start
    @watch = watch # another one: it knows no places yet
    Heddle.run do
      Heddle.spawn(name: "guilty") do
        sleep(0.03)
        @began = monotonic
        yield
        sleep(0.01)
      end
    end
    @watch.stop
    Heddle::StallWatch.settle(1.0)
    Array.new(@reports.size) { @reports.pop }
  end

  def holder_of(path, seconds)
    reader, writer = IO.pipe
    code = "f = File.open(ARGV[0]); f.flock(File::LOCK_EX); puts 1; $stdout.flush; sleep(#{seconds})"
    pid = Process.spawn("ruby", "-e", code, path, out: writer)
    reader.gets
    pid
  ensure
    reader&.close
    writer&.close
  end

  def forked
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      writer.write(yield)
      writer.close
      exit!(0)
    end
    writer.close
    reader.read
  ensure
    reader.close
    Process.wait(pid)
  end
end

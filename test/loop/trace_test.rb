# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "json"
require "tmpdir"

# Heddle.trace: whether the file is what Chrome's trace event format asks for, says what happened, and is whole however
# the block ends; and that no loop waits for it, and none writes into what is gone.
class TraceTest < Minitest::Test
  include LoopHelpers

  def setup = @folder = Dir.mktmpdir

  def teardown = FileUtils.remove_entry(@folder)

  def test_what_a_task_does_is_in_the_file_and_follows_the_format
    events = traced do
      Heddle.run do
        semaphore = Heddle::Semaphore.new(1)
        tasks = 2.times.map { |i| Heddle.spawn(name: "holder #{i}") { semaphore.acquire { sleep(0.002) } } }
        with_pair do |reader, writer|
          reading = Heddle.spawn(name: "reader") { reader.readpartial(10) }
          sleep(0.001)
          writer.write("hello")
          assert_equal "hello", reading.value
        end
        tasks.each(&:wait)
      end
    end
    check(events)
    reader = events.find { |event| event["name"] == "reader" }.fetch("id")
    waits = events.select { |event| event["cat"] == "task" && event["id"] == reader && event["ph"] == "b" }
    assert_equal %w[reader io], waits.map { |event| event["name"] }
    assert_kind_of Integer, waits.last.dig("args", "descriptor")
    read = events.find { |event| event["name"] == "read" && event.dig("args", "bytes") == 5 }
    assert_equal reader, read.dig("args", "task").to_s
    assert(events.any? { |event| event["name"] == "write" && event.dig("args", "bytes") == 5 })
    holder = events.find { |event| event["name"] == "holder 0" }.dig("args", "task")
    woken = events.select { |event| event["ph"] == "s" && event.dig("args", "by") == holder }
    assert_includes woken.map { |event| event.dig("args", "task") },
      events.find { |event| event["name"] == "holder 1" }.dig("args", "task")
    assert_equal %w[completed], events.filter_map { |event| event.dig("args", "status") if event["id"] == reader }
    assert(events.any? { |event| event["name"] == "sleep" && event["cat"] == "poll" })
    assert_equal ["main thread, loop 1"],
      events.filter_map { |event| event.dig("args", "name") if event["name"] == "thread_name" }
  end

  # Which phases have which members: the format's description by Google, and what Perfetto's importer asks for.
  def check(events)
    open = Hash.new { |tasks, id| tasks[id] = [] }
    turns = Hash.new(-1)
    flows = Hash.new(0)
    events.each do |event|
      assert_kind_of Integer, event.fetch("pid")
      assert_kind_of Integer, event.fetch("tid")
      assert_operator event.fetch("ts"), :>=, 0
      assert_kind_of String, event.fetch("name")
      case event.fetch("ph")
      when "X" # one after the other on each thread
        assert_operator event.fetch("ts"), :>=, turns[event["tid"]] - 0.002, event
        turns[event["tid"]] = event["ts"] + event.fetch("dur")
      when "b" then open[event.fetch("id")] << event
      when "e"
        begin_of = open[event.fetch("id")].rindex { |earlier| earlier["name"] == event["name"] }
        refute_nil begin_of, event
        assert_operator event["ts"], :>=, open[event["id"]].delete_at(begin_of)["ts"]
      when "s", "f"
        assert_equal "wake", event.fetch("cat")
        flows[event.fetch("id")] += (event["ph"] == "s") ? 1 : -1
      when "i" then assert_equal "t", event.fetch("s")
      when "M" then assert_equal "thread_name", event["name"]
      else flunk "a phase that is unknown: #{event}"
      end
    end
    assert_empty open.values.flatten
    assert_operator flows.values.min || 0, :>=, 0
  end

  def test_text_of_any_kind_is_json
    name = (+"a\"\\\n\u{1F600}é\xFF\xF0\x28").force_encoding(Encoding::BINARY)
    events = traced do
      Heddle.run { [name, "x" * 5000, "", "é" * 60].map { |each| Heddle.spawn(name: each) { sleep(0) } }.each(&:wait) }
    end
    names = events.map { |event| event["name"] }
    assert_includes names, "a\"\\\n\u{1F600}é??("
    assert_includes names, "x" * 120
    check(events)
  end

  def test_an_exception_leaves_a_whole_file
    path = file
    error = assert_raises(RuntimeError) do
      Heddle.trace(path) { Heddle.run { Heddle.spawn { sleep } && sleep(0.001) && raise("as planned") } }
    end
    assert_equal "as planned", error.message
    check(read(path))
    assert_equal :left, catch(:out) { Heddle.trace(path) { throw :out, :left } }
    check(read(path))
    in_thread { Thread.new { Heddle.trace(path) { Thread.exit } }.join }
    check(read(path))
    assert_equal 7, Heddle.trace(path) { 7 }
  end

  def test_a_task_that_is_cancelled_ends_its_trace
    path = file
    Heddle.run do
      tracing = Heddle.spawn { Heddle.trace(path) { sleep } }
      sleep(0.001)
      other = Heddle.spawn { sleep(0.001) }
      tracing.cancel
      assert_equal :cancelled, tracing.wait.status
      other.wait
      check(read(path))
    end
  end

  def test_a_second_trace_at_once_is_refused
    path = file
    Heddle.trace(path) do
      error = assert_raises(Heddle::TraceInProgress) { Heddle.trace(file) { flunk } }
      assert_match(/a trace is being written to #{Regexp.escape(path)}, and there is one at a time/, error.message)
      assert_raises(Heddle::TraceInProgress) { in_thread { Heddle.trace(file) { flunk } } }
    end
    check(read(path))
    2.times { check(traced { Heddle.run { sleep(0) } }) }
  end

  def test_a_file_that_cannot_be_written
    assert_raises(Errno::ENOENT) { Heddle.trace("#{@folder}/none/trace.json") { flunk } }
    assert_raises(ArgumentError) { Heddle.trace(file) }
    assert_raises(TypeError) { Heddle.trace(nil) { flunk } }
    return unless File.exist?("/dev/full")

    full = -> { Heddle.trace("/dev/full") { Heddle.run { sleep(0.001) } && raise(IOError, "as planned") } }
    assert_raises(IOError) { full.call } # the block's own error comes first
    error = assert_raises(Errno::ENOSPC) { Heddle.trace("/dev/full") { Heddle.run { sleep(0.001) } } }
    assert_match(%r{/dev/full}, error.message)
  end

  def test_loops_of_other_threads_that_open_and_close_meanwhile
    gate = Thread::Queue.new
    inside = Thread::Queue.new
    earlier = Thread.new do
      Thread.current.name = "earlier"
      Heddle.run { 3.times { inside << sleep(0.001) && gate.pop } }
    end
    inside.pop
    events = traced do
      gate << true
      later = 3.times.map do |i|
        Thread.new do
          Thread.current.name = "later #{i}"
          5.times { Heddle.run { 3.times.map { Heddle.spawn { sleep(0.0005) } }.each(&:wait) } }
        end
      end
      later.each(&:join)
      inside.pop
    end
    2.times { gate << true }
    earlier.join
    check(events)
    names = events.filter_map { |event| event.dig("args", "name") if event["name"] == "thread_name" }
    assert_equal 16, names.size
    assert_equal ["earlier", "later 0", "later 1", "later 2"], names.map { |name| name[/\A[^,]+/] }.uniq.sort
  end

  # Traces that begin and end while tasks are in the middle of everything.
  def test_many_traces_beside_busy_loops
    assert_child(<<~RUBY, timeout: 60)
      require "json"
      stop = false
      busy = 2.times.map do
        Thread.new do
          Heddle.run do
            semaphore = Heddle::Semaphore.new(2)
            until stop
              20.times.map { |i| Heddle.spawn(name: i.odd? ? "odd" : nil) { semaphore.acquire { sleep(0.0001) } } }
                .each(&:wait)
            end
          end
        end
      end
      30.times do |i|
        Heddle.trace("#{file}") { i.even? ? sleep(0.002) : Thread.pass }
        JSON.parse(File.read("#{file}"))
        GC.compact if i % 10 == 0
      end
      stop = true
      busy.each(&:join)
    RUBY
  end

  def test_a_ring_that_is_full_loses_events_and_says_how_many
    reader, writer = IO.pipe
    path = "#{@folder}/fifo"
    File.mkfifo(path)
    contents = +""
    # The other end reads nothing until the block is over, as a disk that hangs.
    opening = Thread.new { File.open(path, "r") }
    tracing = Thread.new do
      Heddle.trace(path) do
        Heddle.run { 2.times.map { Heddle.spawn { 80_000.times { sleep(0) } } }.each(&:wait) }
        writer.write("x")
      end
    end
    reader.read(1)
    fifo = opening.value
    contents << fifo.read
    tracing.join
    fifo.close
    events = JSON.parse(contents)
    assert_operator events.find { |event| event["name"] == "events lost" }.dig("args", "lost"), :>, 0
    check(events)
  ensure
    [reader, writer].each(&:close)
  end

  # A pipe whose reader is stopped, say.
  def test_a_reader_that_hangs
    path = "#{@folder}/fifo"
    File.mkfifo(path)
    assert_equal "Errno::ETIMEDOUT", assert_child(<<~RUBY, timeout: 60)
      opening = Thread.new { File.open("#{path}", "r") }
      begin
        Heddle.trace("#{path}") { Heddle.run { 2.times.map { Heddle.spawn { 2000.times { sleep(0) } } }.each(&:wait) } }
      rescue SystemCallError => error
        print error.class
      end
      opening.value.close
    RUBY
  end

  # Other code closes the file's descriptor, and its number names another file.
  def test_a_descriptor_that_becomes_another_files
    skip "the system does not list descriptors" unless File.directory?("/proc/self/fd")
    path = file
    assert_equal "Errno::EBADF ours", assert_child(<<~RUBY, env: {"RUBYLIB" => "#{ROOT}/test"})
      require "support/native_calls"
      File.write("#{@folder}/other", "ours")
      begin
        Heddle.trace("#{path}") do
          number = Dir.children("/proc/self/fd").find { |each| File.identical?("/proc/self/fd/\#{each}", "#{path}") }
          File.open("#{@folder}/other", "a") { |other| NativeCalls.dup2(other.fileno, number.to_i) }
          Heddle.run { sleep(0.001) }
        end
      rescue SystemCallError => error
        print error.class, " "
      end
      print File.read("#{@folder}/other")
    RUBY
  end

  # A server that runs a loop for each request: loops that have closed must not keep their rings.
  def test_many_loops_one_after_the_other_share_rings
    skip "the system does not tell a process's size" unless File.exist?("/proc/self/status")
    assert_equal "400 tracks, little memory", assert_child(<<~RUBY, timeout: 60)
      require "json"
      size = -> { File.read("/proc/self/status")[/VmSize:\\s+(\\d+)/, 1].to_i >> 10 }
      Heddle.trace("#{file}") do
        before = size.call
        400.times { Heddle.run { sleep(0.001) } }
        grown = size.call - before
        @grown = (grown < 2000) ? "little memory" : "\#{grown} megabytes"
      end
      names = JSON.parse(File.read("#{file}")).select { |event| event["name"] == "thread_name" }
      print names.map { |event| event["tid"] }.uniq.size, " tracks, ", @grown
    RUBY
  end

  # Ruby may switch threads at the end of any method call: here, while the name of the loop's thread is asked for.
  def test_a_trace_that_ends_while_a_loop_begins
    assert_equal "asked true", assert_child(<<~RUBY, timeout: 60)
      require "json"
      started, gate, ended, ready, go = Array.new(5) { Thread::Queue.new }
      Thread.new { Heddle.trace("#{file}") { started << 1; gate.pop } && ended << 1 }
      started.pop
      thread = Thread.new do
        TracePoint.new(:c_return) do |point|
          next if point.method_id != :bind_call || Thread.current != thread || gate.closed?
          gate << 1
          gate.close
          ended.pop
          print "asked "
        end.enable { Heddle.run { ready << 1; go.pop; Heddle.spawn(name: "later") { sleep(0.001) }.wait } }
      end
      ready.pop
      Heddle.trace("#{file}.second") { go << 1; thread.join }
      print JSON.parse(File.read("#{file}.second")).any? { |event| event["name"] == "later" }
    RUBY
  end

  # … also while the file is not written.
  def test_many_loops_while_a_reader_hangs
    path = "#{@folder}/fifo"
    File.mkfifo(path)
    opening = Thread.new { File.open(path, "r") }
    done = Thread::Queue.new
    tracing = Thread.new { Heddle.trace(path) { 1200.times { Heddle.run { sleep(0) } } && done << 1 } }
    done.pop
    contents = opening.value.read
    tracing.join
    check(events = JSON.parse(contents))
    lost = events.find { |event| event["name"] == "loops lost" }.dig("args", "lost")
    tracks = events.count { |event| event["name"] == "thread_name" }
    assert_equal 1200, lost + tracks
  ensure
    opening&.value&.close
  end

  def test_a_child_of_fork_writes_nothing_of_its_own
    path = file
    lines = assert_child(<<~RUBY, timeout: 60).lines(chomp: true)
      require "json"
      Heddle.trace("#{path}") do
        Heddle.run do
          sleep(0.001)
          child = fork do
            Heddle.run { Heddle.spawn(name: "in the child") { sleep(0.001) }.wait }
            Heddle.trace("#{path}.child") { Heddle.run { Heddle.spawn(name: "in the child") { sleep(0.001) }.wait } }
          end
          Process.wait(child)
          p $?.success?
          Heddle.spawn(name: "in the parent") { sleep(0.001) }.wait
        end
        Process.wait(fork { exit!(0) })
        Process.wait(fork { exit(0) }) # through the block's end
      end
      parent, child = %w[#{path} #{path}.child].map { |path| JSON.parse(File.read(path)).map { |event| event["name"] } }
      p parent.include?("in the parent"), parent.include?("in the child")
      p child.include?("in the parent"), child.include?("in the child")
    RUBY
    assert_equal %w[true true false false true], lines
  end

  # A child that goes on in the block, and leaves it.
  def test_a_child_of_fork_that_leaves_the_block
    lines = assert_child(<<~RUBY, timeout: 60).lines(chomp: true)
      require "json"
      pid = nil
      Heddle.trace("#{file}") do
        Heddle.run { sleep(0.001) }
        pid = fork
        Heddle.run { Heddle.spawn(name: pid ? "parent" : "child") { sleep(0.001) }.wait }
      end
      if pid
        Process.wait(pid)
        p $?.success?
      end
      names = JSON.parse(File.read("#{file}")).map { |event| event["name"] } if pid
      p names.include?("parent"), names.include?("child") if pid
    RUBY
    assert_equal %w[true true false], lines
  end

  def test_a_process_that_ends_in_the_block_leaves_what_there_was
    path = file
    assert_child(%(Heddle.trace("#{path}") { Heddle.run { sleep(0.01) && Heddle.spawn { exit }.wait } }))
    check(read(path))
    assert_child(<<~RUBY)
      Heddle.trace("#{path}") do
        Heddle.run do
          Heddle.spawn(name: "known") { sleep(0.001) }.wait
          sleep(0.01) until File.read("#{path}").include?("known")
          exit!(0)
        end
      end
    RUBY
    assert_includes File.read(path).lines.drop(1).map { |line| JSON.parse(line.chomp(",\n"))["name"] }, "known"
  end

  def test_under_gc_stress
    assert_child(<<~RUBY, timeout: 60)
      require "json"
      Heddle.run do
        GC.stress = true
        Heddle.trace("#{file}") { 3.times.map { |i| Heddle.spawn(name: "task \#{i}") { sleep(0.0001) } }.each(&:wait) }
        GC.stress = false
      end
      JSON.parse(File.read("#{file}"))
    RUBY
  end

  def test_a_simulation_can_be_traced
    require "heddle/simulation"
    path = file
    Heddle::Simulation.run(seeds: 1) { Heddle.trace(path) { Heddle.spawn(name: "sleeper") { sleep(3600) }.wait } }
    check(events = read(path))
    number = events.find { |event| event["name"] == "sleeper" }.fetch("id")
    sleep = events.select { |event| event["id"] == number && event["name"] == "sleep" }.map { |event| event["ts"] }
    assert_in_delta 3600, (sleep.last - sleep.first) / 1e6, 1
  end

  def test_a_thread_whose_name_is_no_string
    assert_equal "done", assert_child(<<~RUBY)
      nameless = Class.new(Thread) { def name = :symbol }
      Heddle.trace("#{file}") { nameless.new { Heddle.run { sleep(0.001) } }.join }
      nameless.new { Heddle.trace("#{file}") { Heddle.run { sleep(0.001) } } }.join
      print "done"
    RUBY
  end

  # The loop has no descriptors, so its first use fails; the next one comes when the trace has ended.
  def test_a_loop_that_could_not_open_during_the_trace
    assert_equal "EMFILE done", assert_child(<<~RUBY)
      Heddle::Scheduler.new
      before = Process.getrlimit(:NOFILE)
      ask, answer = Queue.new, Queue.new
      thread = Thread.new do
        Fiber.set_scheduler(Heddle::Scheduler.new)
        ask.pop
        begin
          Fiber.schedule { sleep(0.001) }
        rescue Errno::EMFILE
          print "EMFILE "
        end
        answer << 1
        ask.pop
        20.times { Fiber.schedule { sleep(0.001) } }
      end
      Heddle.trace("#{file}") do
        Process.setrlimit(:NOFILE, 3, before.last)
        ask << 1
        answer.pop
        Process.setrlimit(:NOFILE, *before)
      end
      ask << 1
      thread.join
      print "done"
    RUBY
  end

  private

  def file = "#{@folder}/trace.json"

  def read(path) = JSON.parse(File.read(path))

  def traced(&block)
    Heddle.trace(file, &block)
    read(file)
  end
end

# frozen_string_literal: true

require "test_helper"
require "open3"
require "tmpdir"
require "support/loop_helpers"

# Workers that end too early, parents that end, and what either leaves behind.
class ProcessesEndsTest < Minitest::Test
  include LoopHelpers

  module Behaviour
    def test_a_killed_worker_is_reported_with_its_items
      in_host do
        error = assert_raises(Heddle::WorkerLost) do
          Heddle.map(1..6, fibers: 3, processes: 2) { |item| (item == 4) ? Process.kill(:KILL, $$) : sleep }
        end
        assert_includes error.items, 4
        assert_operator error.items.size, :<=, 3
        assert_equal Signal.list["KILL"], error.status.termsig
        assert_match(/\Aworker process \d+ was killed by SIGKILL with \d items in work, /, error.message)
        assert_match(/ in work, which may be partly done: .*item 3 \(4\)/, error.message)
        assert_no_child
      end
    end

    # Those that it has answered are not lost, and those of the other worker neither.
    def test_a_worker_that_is_killed_in_the_middle_names_exactly_its_items
      in_host do
        reader, writer = IO.pipe
        had = Hash.new { |hash, pid| hash[pid] = [] }
        killer = Thread.new do
          10.times { reader.gets.split.then { |pid, item| had[pid] << Integer(item) } }
          Process.kill(:KILL, Integer(had.keys.first))
        end
        error = assert_raises(Heddle::WorkerLost) do
          Heddle.map([*0...100], fibers: 5, processes: 2) do |item|
            next item if item < 40

            writer.syswrite("#{$$} #{item}\n")
            sleep
          end
        end
        killer.join
        assert_equal had.values.first.sort, error.items.sort
        assert_equal Signal.list["KILL"], error.status.termsig
        assert_no_child
      ensure
        [reader, writer].each(&:close)
      end
    end

    def test_a_worker_that_is_killed_from_outside_while_all_wait
      in_host do
        reader, writer = IO.pipe
        killer = Thread.new { Process.kill(:KILL, Integer(reader.gets)) }
        assert_raises(Heddle::WorkerLost) do
          Heddle.map(1..2, fibers: 1, processes: 2) { |item| (item == 1 || writer.puts($$).nil?) && sleep }
        end
        killer.join
        assert_no_child
      end
    end

    # A child of the worker has its socket: the connection does not end.
    def test_a_killed_worker_whose_own_child_lives_on
      in_host do
        assert_lost_with_a_child do |lose|
          Heddle.map(1..2, fibers: 1, processes: 2) { |item| (item == 2) ? lose.call : sleep }
        end
      end
    end

    # Nor is it quiet: the other worker runs without end.
    def test_a_killed_worker_whose_own_child_lives_on_beside_a_busy_one
      in_host do
        assert_lost_with_a_child do |lose|
          Heddle::Processes.new(2, fibers: 1).each(1..) { |item| (item == 2) ? lose.call : sleep(0.001) }
        end
      end
    end

    # A child that this process forks meanwhile has our ends of the workers' sockets.
    def test_workers_end_at_once_though_another_child_inherited_their_sockets
      in_host do
        other = nil
        items = [1, 2, 3].lazy.map { |item| item.tap { other ||= fork { sleep(30) && exit!(0) } if item == 2 } }
        started = monotonic
        Heddle::Processes.new(2).each(items) { |item| item }
        assert_operator monotonic - started, :<, Heddle::Processes::GRACE * 0.6
      ensure
        Process.kill(:KILL, other)
        Process.wait(other)
      end
    end

    # The child leaves the call by its exit, which must not end the workers that it knows.
    def test_another_child_that_leaves_the_call_ends_no_worker
      in_host do
        items = Enumerator.new do |taker|
          taker << 1 << 2
          if (other = fork)
            Process.wait(other)
            3.upto(6) { |item| taker << item }
          else
            at_exit { exit!(0) } # before the tests' own
            exit
          end
        end
        assert_equal (1..6).map { |item| -item }, Heddle::Processes.new(2).map(items, &:-@)
      end
    end

    def test_exit_and_abort_end_the_worker_in_order
      in_host do
        {"exit(7)" => 7, "exit!(8)" => 8, "abort" => 1}.each do |code, status|
          work = ->(item) { (item == "b") ? eval(code) : sleep } # rubocop:disable Security/Eval
          error = assert_raises(Heddle::WorkerLost) { Heddle.map(%w[a b], processes: 2, &work) }
          assert_equal [["b"], status], [error.items, error.status.exitstatus]
          assert_match(/ended with status #{status} with one item in work, .*item 1 \("b"\)/, error.message)
        end
        assert_no_child
      end
    end

    def test_a_worker_that_a_signal_ends
      in_host do
        error = assert_raises(Heddle::WorkerLost) {
          Heddle.map(1..2, processes: 2) { |item| (item == 2) ? Process.kill(:TERM, $$) && sleep : sleep }
        }
        assert_equal Signal.list["TERM"], error.status.termsig
      end
    end

    def test_a_worker_whose_thread_ends
      in_host do
        assert_raises(Heddle::WorkerLost) do
          Heddle.map(1..2, processes: 2) { |item| (item == 2) ? Thread.exit : sleep }
        end
        assert_no_child
      end
    end

    def test_no_descriptor_is_left
      in_host do
        Heddle.map(1..4, processes: 2) { |item| item }
        GC.start
        before = descriptor_count
        5.times { Heddle.map(1..4, processes: 2) { |item| item } }
        assert_raises(IOError) { Heddle.map(1..4, processes: 2) { raise IOError } }
        assert_raises(Heddle::WorkerLost) { Heddle.map(1..4, processes: 2) { exit!(1) } }
        assert_equal 1, Heddle::Processes.new(2).stream(1..100) { |item| item }.first
        GC.start
        assert_operator descriptor_count, :<=, before
        assert_no_child
      end
    end

    # Each has its own end of its own socket, and none of the others'.
    def test_a_worker_inherits_no_other_workers_sockets
      in_host do
        before = open_sockets
        seen = Heddle::Processes.new(4, fibers: 1).map(1..4) { sleep(0.02) && (open_sockets - before).size }
        assert_equal [1, 1, 1, 1], seen
      end
    end

    def test_another_child_inherits_no_workers_sockets
      in_host do
        before = open_sockets
        reader, writer = IO.pipe
        items = [1, 2, 3].lazy.map { |item|
          item.tap { Process.wait(fork { writer.puts((open_sockets - before).size) && exit!(0) }) if item == 3 }
        }
        Heddle::Processes.new(2).each(items) { |item| item }
        assert_equal "0\n", reader.gets
      end
    end

    def test_break_out_of_a_stream
      in_host do
        value =
          Heddle::Processes.new(2, fibers: 2).stream(Enumerator.produce(1) { |last| last + 1 }) { |item| item * 2 }
            .each { |twice| break twice if twice == 10 }
        assert_equal 10, value
        assert_no_child
      end
    end

    def test_raise_and_throw_out_of_a_stream
      in_host do
        stream = Heddle::Processes.new(2, fibers: 2).stream(1..Float::INFINITY) { |item| item }
        assert_raises(IOError) { stream.each { |value| raise IOError if value == 5 } }
        assert_equal 6, catch(:found) { stream.each { |value| throw :found, 6 if value == 6 } }
        assert_equal [1, 2, 3], stream.first(3)
        assert_equal [2, 4], stream.lazy.select(&:even?).first(2)
        assert_no_child
      end
    end

    def test_a_stream_is_in_order_and_reads_ahead_only_a_bounded_number
      in_host do
        taken = most = delivered = 0
        items = Enumerator.new { |yielder| 200.times { |item| (taken += 1) && yielder << item } }
        values = []
        Heddle::Processes.new(2, fibers: 4)
          .stream(items, ahead: 10) { |item| sleep((item % 50 == 0) ? 0.02 : 0.0002) && item }.each do |value|
          values << value
          delivered += 1
          most = [most, taken - delivered].max
        end
        assert_equal [*0...200], values
        assert_operator most, :<=, 11
      end
    end

    def test_an_error_comes_out_of_a_stream
      in_host do
        seen = []
        assert_raises(IOError) do
          Heddle::Processes.new(1, fibers: 1).stream(1..9) { |item| (item == 4) ? raise(IOError) : item }
            .each { |value| seen << value }
        end
        assert_equal [1, 2, 3], seen
      end
    end

    private

    def open_sockets
      names = Dir.children("/proc/self/fd").filter_map do |name|
        File.readlink("/proc/self/fd/#{name}")
      rescue Errno::ENOENT
        nil
      end
      names.grep(/\Asocket:/)
    end

    # Yields a callable with which a worker leaves a child behind, which has its socket, and is killed.
    def assert_lost_with_a_child
      reader, writer = IO.pipe
      lose = lambda do
        writer.puts(fork { sleep(30) && exit!(0) })
        Process.kill(:KILL, $$)
      end
      assert_raises(Heddle::WorkerLost) { yield lose }
      Process.kill(:KILL, Integer(reader.gets))
      assert_no_child
    end
  end

  class InARun < ProcessesEndsTest
    include Behaviour

    mode :fiber

    private

    def in_host(&block) = Heddle.run(&block)
  end

  class Blocking < ProcessesEndsTest
    include Behaviour

    mode :blocking

    private

    def in_host = yield
  end

  # The end of whole programs.
  class Programs < ProcessesEndsTest
    PLACES = {"blocking" => "%s", "in a run" => "Heddle.run { %s }"}.freeze

    WORK = <<~RUBY
      Heddle.map(1..4, fibers: 2, processes: 2) do |item|
        puts "worker \#{$$}"
        sleep
      ensure
        puts "ensured"
      end
    RUBY

    def test_a_signal_to_the_parent_ends_the_workers_in_order
      PLACES.each_value do |place|
        %w[TERM INT].each do |signal|
          outcome = in_child("at_exit { puts 'at_exit' }\n#{place % WORK}",
            timeout: 10) { |pid, out| at_work(out) && Process.kill(signal, pid) }
          assert_equal Signal.list[signal], outcome.status.termsig, outcome.err
          assert_equal [4, 1], [outcome.out.scan("ensured").size, outcome.out.scan("at_exit").size]
          assert_gone(outcome.out)
        end
      end
    end

    # As service managers do. The clean-up of the items waits, and is not cut short.
    def test_sigterm_to_the_whole_process_group
      work = WORK.sub('puts "ensured"', 'sleep(0.1); puts "ensured"')
      outcome = in_child(work, timeout: 10, pgroup: true) { |pid, out| at_work(out) && Process.kill("TERM", -pid) }
      assert_equal [Signal.list["TERM"], 4], [outcome.status.termsig, outcome.out.scan("ensured").size]
      assert_gone(outcome.out)
    end

    # Ctrl-C reaches all processes of a terminal.
    def test_sigint_to_the_whole_process_group
      outcome = in_child(WORK, timeout: 10, pgroup: true) { |pid, out| at_work(out) && Process.kill("INT", -pid) }
      assert_equal [Signal.list["INT"], 4], [outcome.status.termsig, outcome.out.scan("ensured").size]
      refute_includes outcome.err, "worker process"
      assert_gone(outcome.out)
    end

    def test_workers_end_when_their_parent_is_killed
      outcome = in_child(WORK, timeout: 10) { |pid, out| at_work(out) && Process.kill("KILL", pid) }
      assert_equal Signal.list["KILL"], outcome.status.termsig
      assert_gone(outcome.out)
    end

    # A parent that decides to continue lets its workers continue.
    def test_signal_handlers_stay_in_the_parent
      interrupt = ->(pid, file) { at_work(file, items: 2, workers: 2) && Process.kill("INT", -pid) }
      out = assert_child(<<~RUBY, timeout: 20, pgroup: true, &interrupt)
        handled = 0
        trap("INT") { puts "handled"; handled += 1 }
        trap("TERM") { puts "not in a worker" }
        items = Enumerator.new do |yielder|
          2.times { |item| yielder << item }
          sleep(0.005) until handled > 0
          yielder << 2
        end
        values = Heddle.map(items,
          fibers: 2, processes: 2) { |item| puts("worker \#{$$}") && sleep(0.01); puts "worker \#{$$}"; item }
        puts values.inspect
        begin
          Heddle.map(1..2, processes: 2) { |item| item == 1 ? sleep : sleep(0.2) && raise(IOError) }
        rescue IOError
          puts "ended"
        end
      RUBY
      assert_equal [1, 1, 1, 0],
        ["handled\n", "[0, 1, 2]\n", "ended\n", "not in a worker"].map { |text| out.scan(text).size }
    end

    # The worker is held in its fork, where it has the parent's handlers, until the signal was sent.
    def test_a_signal_before_a_worker_has_started
      %w[INT TERM].each do |name|
        out = assert_child(<<~RUBY, timeout: 20)
          trap("#{name}") { puts "not in a worker" }
          Process.singleton_class.prepend(Module.new do
            def _fork
              reader, writer = IO.pipe
              pid = super
              return pid.tap { Process.kill("#{name}", pid) && writer.puts } unless pid.zero?

              reader.gets
              100.times { Thread.pass } # where the handlers run
              pid
            end
          end)
          begin
            puts Heddle.map(1..4, processes: 2) { |item| item }.inspect
          rescue Heddle::WorkerLost => error
            puts error.message[/SIG\\w+/]
          end
          Process.kill("#{name}", $$)
        RUBY
        assert_equal [(name == "INT") ? "[1, 2, 3, 4]" : "SIGTERM", "not in a worker"], out.lines(chomp: true)
      end
    end

    # Timeout.timeout and Thread#raise interrupt anywhere, and a fork takes milliseconds.
    def test_an_exception_during_a_fork_leaves_no_worker
      PLACES.each_value do |place|
        out = assert_child(<<~RUBY, timeout: 20)
          Process.singleton_class.prepend(Module.new do
            def _fork = super.tap { |pid| Thread.current.raise(IOError, "interrupted") unless pid.zero? }
          end)
          begin
            #{place % "Heddle.map(1..4, processes: 2) { sleep }"}
          rescue IOError => error
            puts error.message
          end
          begin
            puts "a child: \#{Process.wait(-1, Process::WNOHANG)}"
          rescue Errno::ECHILD
            puts "no child", Dir.children("/proc/self/fd")
              .count { |name| File.readlink("/proc/self/fd/\#{name}").start_with?("socket:") rescue nil }
          end
        RUBY
        assert_equal ["interrupted", "no child", "0"], out.lines(chomp: true)
      end
    end

    # A task of another thread waits for its own fork meanwhile. Other Rubies crash in a fork beside such a thread
    # (doc/limits.md).
    def test_a_fork_while_a_task_of_another_thread_is_about_to_fork
      return unless ruby_at_least?("4.0")

      out = assert_child(<<~RUBY, timeout: 20)
        other = nil
        Process.singleton_class.prepend(Module.new do
          define_method(:_fork) do
            unless other
              other = Thread.new { Heddle.run { Heddle.map(1..2, processes: 2) { |item| item } } }
              sleep(0.001) until other.stop?
            end
            super()
          end
        end)
        p Heddle.map(1..2, processes: 2) { |item| item }, other.value
      RUBY
      assert_equal "[1, 2]\n[1, 2]\n", out
    end

    def test_a_worker_that_refuses_to_end_is_killed
      out = assert_child(<<~RUBY, timeout: 20)
        Heddle::Processes.send(:remove_const, :GRACE)
        Heddle::Processes::GRACE = 0.3
        begin
          Heddle.map(1..2, processes: 2) do |item|
            item == 1 ? begin sleep; rescue Exception; retry; end : sleep(0.05) && raise(IOError, "raised")
          end
        rescue IOError => error
          puts error.message
        end
        begin
          Process.wait(-1, Process::WNOHANG)
        rescue Errno::ECHILD
          puts "no child"
        end
      RUBY
      assert_equal "raised\nno child\n", out
    end

    def test_a_worker_runs_no_at_exit_and_flushes_output_once
      PLACES.each_value do |place|
        Tempfile.create("heddle") do |file|
          outcome = in_child(<<~RUBY, timeout: 20)
            $stdout.sync = false
            at_exit { print "at_exit " }
            held = File.open(#{file.path.dump}, "w")
            held.print "once "
            print "before "
            #{place % 'Heddle.map(1..2, fibers: 1, processes: 2) { |item| sleep(0.01); print "worker " }'}
            print "after "
          RUBY
          assert_equal %w[after at_exit before worker worker], outcome.out.split.sort
          assert_equal "once ", File.read(file.path)
        end
      end
    end

    # Ruby takes the path of the program for US-ASCII then.
    def test_a_workers_own_error_is_printed_without_a_locale
      Dir.mktmpdir do |folder|
        File.write(path = "#{folder}/größe.rb", <<~RUBY)
          require "heddle"
          Heddle::Processes.const_get(:Child).prepend(Module.new { private def serve = raise("größer") })
          Heddle.map(1..2, fibers: 1, processes: 2) {}
        RUBY
        environment = {"LC_ALL" => "C", "LANG" => nil, "RUBYOPT" => nil}
        folders = LoopHelpers.libraries.map { |library| "-I#{library}" }
        _, said, = Open3.capture3(environment, RbConfig.ruby, "--disable=gems", "-Ilib", *folders, path, chdir: ROOT)
        said.force_encoding(Encoding::UTF_8)
        assert_match(/größer/, said)
        assert_match(/worker process \d+ ended/, said)
      end
    end

    # For a hundred values of 1 MiB each a process needs the memory of a few.
    def test_a_hundred_mebibytes_of_values_in_bounded_memory
      out = assert_child(<<~RUBY, timeout: 50)
        def rss = File.read("/proc/self/status")[/^VmHWM:\\s+(\\d+)/, 1].to_i / 1024
        stream = Heddle::Processes.new(2, fibers: 4)
          .stream(1..100) { |item| (item % 9 == 0) && sleep(0.02); item.to_s * (1_048_576 / item.to_s.size) }
        before, bytes = rss, 0
        stream.each { |value| bytes += value.bytesize; sleep(0.001); GC.start if bytes % 7 == 0 }
        puts bytes / 1_000_000, rss - before
      RUBY
      megabytes, grown = out.split.map(&:to_i)
      assert_operator megabytes, :>=, 103
      assert_operator grown, :<, 70
    end

    private

    def at_work(out, items: 4, workers: 1)
      wait_until(what: "all items in work") do
        said = File.read(out.path).scan(/worker \d+/)
        said.size >= items && said.uniq.size >= workers
      end
    end

    def assert_gone(text)
      text.scan(/worker (\d+)/).flatten.uniq.each do |pid|
        wait_until(what: "the end of worker #{pid}") do
          Process.kill(0, Integer(pid)) && File.read("/proc/#{pid}/stat").include?(") Z ")
        rescue Errno::ESRCH, Errno::ENOENT
          true
        end
      end
    end
  end

  private

  def assert_no_child = assert_raises(Errno::ECHILD) { Process.wait(-1, Process::WNOHANG) }
end

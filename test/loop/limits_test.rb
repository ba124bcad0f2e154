# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# An error of the system's is raised where the request was made; tasks that run already continue.
class LimitsTest < Minitest::Test
  include LoopHelpers

  def test_the_descriptor_limit_is_named_and_other_tasks_continue
    out = assert_child(<<~RUBY, rlimit_nofile: [64, 64])
      puts(Heddle.run do
        reader, writer = UNIXSocket.pair
        echo = Heddle.spawn { reader.readpartial(4) }
        opened = []
        failed = Heddle.spawn do
          loop { opened.concat(UNIXSocket.pair) }
        rescue SystemCallError => error
          error
        end
        writer.write("here")
        [failed.value.class, failed.value.message.downcase.include?("too many open files"), opened.size > 20,
          echo.value].join(" ")
      end)
    RUBY
    assert_equal "Errno::EMFILE true true here\n", out
  end

  def test_a_scheduler_without_descriptors_raises_a_clear_error
    out = assert_child(<<~RUBY, rlimit_nofile: [40, 40])
      open = []
      begin
        loop { open << File.open(File::NULL) }
      rescue Errno::EMFILE
      end
      begin
        Heddle.run { 1 }
      rescue SystemCallError => error
        puts error.class
      end
      open.each(&:close)
      puts Heddle.run { 2 } # and it can be tried again
    RUBY
    assert_equal "Errno::EMFILE\n2\n", out
  end

  # There is a descriptor for wake-ups, but none for the backend. The pipe that is tried instead needs two.
  def test_a_loop_that_gets_only_one_descriptor
    out = assert_child(<<~RUBY, rlimit_nofile: [40, 40])
      Heddle::Scheduler.backends # asks the kernel while there is room
      open = []
      begin
        loop { open << File.open(File::NULL) }
      rescue Errno::EMFILE
        open.pop.close
      end
      begin
        Heddle.run { puts "ran" }
      rescue SystemCallError => error
        puts error.message
      end
      open << File.open(File::NULL) # nothing was left open
      open.each(&:close)
      puts Heddle.run { Heddle.spawn { sleep(0.001) && :later }.value }
    RUBY
    first, last = out.lines(chomp: true)
    used = Heddle::Scheduler.new.backend
    used = "heddle: cannot make a file descriptor to wake the loop" if portable_build?
    expected = (used == "poll") ? "ran" : "Too many open files - #{used}"
    assert_equal [expected, "later"], [first, last]
  end

  def test_a_child_process_at_the_descriptor_limit_can_still_be_waited_for
    out = assert_child(<<~RUBY, rlimit_nofile: [48, 48])
      status = Heddle.run do
        pid = spawn("exit 3")
        open = []
        begin
          loop { open << File.open(File::NULL) }
        rescue Errno::EMFILE
        end
        Process.wait2(pid).last.exitstatus
      end
      puts status
    RUBY
    assert_equal "3\n", out
  end

  def test_the_memory_map_limit_is_named_and_other_tasks_continue
    out = assert_child(<<~RUBY, timeout: 50)
      Heddle.run do
        reader, writer = UNIXSocket.pair
        echo = Heddle.spawn { reader.readpartial(4) }
        tasks = []
        ended = 0
        begin
          200_000.times { tasks << Heddle.spawn { begin; sleep; ensure; ended += 1; end } }
          puts "no limit"
        rescue Heddle::LimitReached => error
          puts error.is_a?(FiberError), error.message.include?("vm.max_map_count"),
            error.message.include?(File.read("/proc/sys/vm/max_map_count").strip)
        end
        writer.write("here")
        puts echo.value
        reached = tasks.size
        tasks.pop(100).each(&:cancel)
        sleep 0
        GC.start
        puts Heddle.spawn { sleep 0.001; :again }.value
        tasks.each(&:cancel)
        sleep 0
        puts ended == reached
      end
    RUBY
    skip "this kernel lets a process have more fibers than the test makes" if out.start_with?("no limit")
    assert_equal %w[true true true here again true], out.split
  end

  # Where /proc is not mounted, and on other systems, the limit is not known.
  def test_a_memory_limit_without_proc
    launcher = %w[unshare --user --map-root-user --mount sh -c] + ['mount -t tmpfs tmpfs /proc && exec "$@"', "sh"]
    skip "this machine lets no process hide /proc" unless system(*launcher, "true", err: File::NULL)
    out = assert_child(<<~RUBY, launcher: launcher, rlimit_as: [2 << 30, 2 << 30])
      Heddle.run do
        tasks = []
        begin
          100_000.times { tasks << Heddle.spawn { sleep } }
        rescue Heddle::LimitReached => error
          puts error.message
          exit!(true) # short of memory
        end
      end
    RUBY
    assert_match(/\d+ tasks have not ended, and each fiber takes two memory maps. Raise their limit/, out)
  end
end

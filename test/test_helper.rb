# frozen_string_literal: true

# Every test file starts with `require "test_helper"` and can be run by itself:
#
#   ruby -Ilib -Itest test/loop/sleep_test.rb --seed 1
#
# The library is not loaded here, so that a test of the lab can do without: a test file says `require "heddle"`.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__), File.expand_path("../lab/lib", __dir__), __dir__)
$LOAD_PATH.uniq!

require "minitest/autorun"
require "support/record"
require "support/watchdog"

# No test runs in parallel with others of its process. Minitest's threads for that would start while the watchdog is forked,
# and a child of a process in which another thread is just allocating stands still under AddressSanitizer.
Minitest.parallel_executor = Minitest::Parallel::Executor.new(0)

# What tests of every suite need. Times are in seconds.
module TestHelpers
  module ClassMethods
    # mode :fiber (or :thread, :blocking) says in which of Ruby's modes a class's tests run; bin/test's table shows it.
    def mode(name = nil)
      @mode = name.to_s if name
      @mode || (superclass.respond_to?(:mode) ? superclass.mode : "-")
    end
  end

  # The block must end within +seconds+, and not before +at_least+. The machine may have been busy, so a block that was
  # late is measured again, +remeasure+ times. Not (remeasure: 0) where what the first time has left lets the second be
  # quick: the end of a thread, a task's value, bytes that have arrived. Returns the block's value.
  def assert_within(seconds, at_least: 0, remeasure: 1)
    took = value = nil
    (remeasure + 1).times do
      start = monotonic
      value = yield
      took = monotonic - start
      break if took <= seconds
    end
    assert_operator took, :<=, seconds, "took #{took.round(3)} s"
    assert_operator took, :>=, at_least, "took #{took.round(3)} s only"
    value
  end

  # Waits until the block is true, and returns what it gave.
  def wait_until(timeout = 10, what: "the condition")
    deadline = monotonic + timeout
    until (value = yield)
      flunk "#{what} has not come true in #{timeout} s" if monotonic > deadline
      sleep 0.002
    end
    value
  end

  def monotonic
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # How many descriptors this process has open. The one that reads the folder is not counted.
  def descriptor_count
    Dir.children("/dev/fd").size - 1
  end

  # Resident memory of a process, in KiB.
  def rss_kib(pid = "self")
    return Integer(`ps -o rss= -p #{(pid == "self") ? Process.pid : pid}`) unless linux?

    File.read("/proc/#{pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i
  end

  def ruby_at_least?(version)
    Gem::Version.new(RUBY_VERSION) >= Gem::Version.new(version)
  end

  def linux?
    RUBY_PLATFORM.include?("linux")
  end

  # Whether the compiled code uses nothing of Linux's own: elsewhere, and here where it was made so (rake compile:portable).
  def portable_build?
    !linux? || TestRecord.column.include?("portable")
  end

  # The backend that this run is forced to ("uring", "epoll"), or "default".
  def backend
    TestRecord.backend
  end
end

Minitest::Test.include(TestHelpers)
Minitest::Test.extend(TestHelpers::ClassMethods)
Minitest::Test.prepend(Watchdog::Hook)

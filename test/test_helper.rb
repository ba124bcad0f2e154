# frozen_string_literal: true

# Every test file starts with `require "test_helper"` and can be run alone:
#
#   ruby -Ilib -Itest test/loop/timers_test.rb --seed 1
#
# This file does not load the library, so that the lab's tests can run without it: a test file that needs the library
# says `require "heddle"`.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__), File.expand_path("../lab/lib", __dir__), __dir__)
$LOAD_PATH.uniq!

require "support/locale"

# Railties' plugin would load ActiveSupport into each test, and I18n would give each fiber a storage.
ENV["MT_NO_PLUGINS"] = "1"
require "minitest/autorun"
require "support/emulator"
require "support/placement"
require "support/record"
require "support/scheduling_delay"
require "support/slowness"
require "support/watchdog"

# Where the file runs; bin/test reads the line. A word that does not exist fails the file.
define_singleton_method(:runs_on) { |**rules| Placement.new(**rules) }

# No test runs in parallel with others of its process. Minitest would start threads for that while the watchdog is
# forked, and under AddressSanitizer a child hangs if another thread of its parent was allocating at the fork.
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

  # The block must end within +seconds+, stretched by the machine's slowness and without the scheduling delay, and not
  # before +at_least+. A block that is late is measured again, up to +remeasure+ times, since processes that ended
  # meanwhile may have been delayed as well. Pass remeasure: 0 where the first run makes the second one fast: an ended
  # thread, a task's value, bytes that have arrived. Returns the block's value.
  def assert_within(seconds, at_least: 0, remeasure: 1)
    took = undelayed = value = nil
    (remeasure + 1).times do
      took, undelayed, value = timed { yield }
      break if undelayed <= stretched(seconds)
    end
    assert_operator undelayed, :<=, stretched(seconds), "took #{took.round(3)} s"
    assert_operator took, :>=, at_least, "took #{took.round(3)} s only"
    value
  end

  # How long the block took; the same without the scheduling delay; and the block's value.
  def timed
    delays = SchedulingDelay.by_thread
    start = monotonic
    value = yield
    took = monotonic - start
    [took, took - SchedulingDelay.since(delays), value]
  end

  # Waits until the block returns a true value, and returns that value.
  def wait_until(timeout = 10, what: "the condition")
    deadline = monotonic + stretched(timeout)
    until (value = yield)
      flunk "waited #{stretched(timeout)} s in vain for #{what}" if monotonic > deadline
      sleep 0.002
    end
    value
  end

  # A limit in seconds, as long as this machine needs it: for the latest moment, never for the earliest.
  def stretched(seconds) = Slowness.stretch(seconds)

  def monotonic = Heddle::Clock.now

  # Seconds of CPU time that this process spent in the block, whatever else the machine does.
  def cpu_time
    start = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    yield
    Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - start
  end

  # The number of open descriptors of this process, without the one that reads the folder.
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

  # Whether the compiled code uses nothing that only Linux has: on other systems, and here in a build by rake
  # compile:portable.
  def portable_build?
    !linux? || TestRecord.column.include?("portable")
  end

  # The backend that this run is forced to ("uring", "epoll"), or "default".
  def backend
    TestRecord.backend
  end
end

# A test that lacks a gem or a server fails.
module WhatToInstall
  def capture_exceptions
    super do
      yield
    rescue LoadError, StandardError => error
      raise unless LoadError === error || error.class.name.match?(/Servers::Unavailable|ODBCSources::Missing/)

      raise error, "#{error.message}\n(`bin/setup --all` installs what the tests need)", error.backtrace
    end
  end
end

Minitest::Test.include(TestHelpers)
Minitest::Test.prepend(WhatToInstall)
Minitest::Test.extend(TestHelpers::ClassMethods)
Minitest::Test.prepend(Emulator::Hook) if Emulator.name
Minitest::Test.prepend(Watchdog::Hook)

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/native_calls"
require "io/nonblock"
require "open3"

# The limits of doc/limits.md: what stops the loop while it waits, and that Heddle.offload prevents it. The heartbeat
# of another task shows it.
class WhatStopsTheLoopTest < Minitest::Test
  include LoopHelpers

  WAIT = 0.3 # seconds that each call takes
  STOPPED = 0.2
  RUNNING = 0.1

  def test_flock_stops_the_loop
    Tempfile.create("heddle") do |file|
      lock = -> { File.open(file.path) { |again| again.flock(File::LOCK_EX) } }
      while_locked(file.path) { assert_operator gap(&lock), :>, STOPPED }
      assert_runs { while_locked(file.path) { gap { Heddle.offload(&lock) } } }
    end
  end

  # A FIFO stands for a file that is slow to open: its other end is not open yet.
  def test_opening_a_slow_file_stops_the_loop
    Dir.mktmpdir do |folder|
      File.mkfifo(path = "#{folder}/fifo")
      open_it = -> { File.open(path, "r").close }
      while_nobody_writes(path) { assert_operator gap(&open_it), :>, STOPPED }
      assert_runs { while_nobody_writes(path) { gap { Heddle.offload(&open_it) } } }
    end
  end

  def test_open3_and_backticks_do_not_stop_the_loop
    assert_runs { gap { assert_equal "out", Open3.capture2("sleep #{WAIT}; printf out").first } }
    assert_runs { gap { assert_predicate Open3.capture3("sleep #{WAIT}").last, :success? } }
    assert_runs { gap { `sleep #{WAIT}` } }
  end

  # No thread runs meanwhile, so offload cannot help.
  def test_an_extension_that_keeps_the_gvl
    2.times do |round|
      with_pair do |one, _|
        one.nonblock = false
        guard = Heddle::SocketGuard.new(one.fileno, WAIT)
        wait = -> { NativeCalls.recv_holding_the_lock(one.fileno) }
        assert_operator gap { round.zero? ? wait.call : Heddle.offload(&wait) }, :>, STOPPED
        guard.release
      end
    end
  end

  private

  # A gap may be the machine's: only one that appears three times is the loop's.
  def assert_runs
    gap = nil
    3.times { break if (gap = yield) < RUNNING }
    assert_operator gap, :<, RUNNING
  end

  # Seconds: the longest time that another task had to wait for its turn while the block ran.
  def gap(&block) = gap_and_time(&block).first

  # Another process has the lock for the block's first WAIT seconds.
  def while_locked(path, &block)
    meanwhile("File.open(#{path.dump}) { |file| file.flock(File::LOCK_EX); puts; $stdout.flush; sleep(#{WAIT}) }",
      &block)
  end

  def while_nobody_writes(path, &block)
    meanwhile("puts; $stdout.flush; sleep(#{WAIT}); File.open(#{path.dump}, 'w').close", &block)
  end

  def meanwhile(code)
    IO.popen([RbConfig.ruby, "--disable=gems", "-e", code]) do |other|
      other.gets
      yield
    end
  end
end

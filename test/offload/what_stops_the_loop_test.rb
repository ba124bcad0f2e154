# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/native_calls"
require "io/nonblock"
require "open3"

# The limits of doc/limits.md: what stops the loop while it waits, and that Heddle.offload prevents it. The turns of
# another task show it.
class WhatStopsTheLoopTest < Minitest::Test
  include LoopHelpers

  WAIT = 0.3 # seconds of a wait that stops the loop
  HANG = 20
  FEW = 10 # turns: a loop that is stopped gives fewer

  def test_flock_stops_the_loop
    Tempfile.create("heddle") do |file|
      locked = "$file = File.open(#{file.path.dump}); $file.flock(File::LOCK_EX); %s"
      assert_stops_unless_offloaded(locked) { File.open(file.path) { |again| again.flock(File::LOCK_EX) } }
    end
  end

  # A FIFO stands for a file that is slow to open: its other end is not open yet.
  def test_opening_a_slow_file_stops_the_loop
    with_fifo do |path|
      assert_stops_unless_offloaded("%s; File.open(#{path.dump}, 'w').close") { File.open(path, "r").close }
    end
  end

  def test_open3_and_backticks_do_not_stop_the_loop
    assert_runs_beside { |command| assert_equal "out", Open3.capture2("#{command}; printf out").first }
    assert_runs_beside { |command| assert_predicate Open3.capture3(command).last, :success? }
    assert_runs_beside { |command| `#{command}` }
  end

  # No thread runs meanwhile, so offload cannot help.
  def test_an_extension_that_keeps_the_gvl
    2.times do |round|
      with_pair do |one, _|
        one.nonblock = false
        wait = -> { NativeCalls.recv_holding_the_lock(one.fileno) }
        turns = turns_beside do
          guard = Heddle::SocketGuard.new(one.fileno, WAIT)
          round.zero? ? wait.call : Heddle.offload(&wait)
          guard.release
        end
        assert_operator turns, :<, FEW
      end
    end
  end

  private

  # The block waits for what another process holds, by +code+, until its step %s ends: after WAIT; or, where the block
  # is offloaded, once another task has had FEW turns.
  def assert_stops_unless_offloaded(code, &block)
    beside(code, WAIT) { assert_operator turns_beside(&block), :<, FEW }
    beside(code, HANG) { |other| assert_runs(-> { other.syswrite("\n") }) { Heddle.offload(&block) } }
  end

  def beside(code, seconds)
    step = "puts; $stdout.flush; IO.select([$stdin], nil, nil, #{seconds})"
    IO.popen([RbConfig.ruby, "--disable=gems", "-e", format(code, step)], "r+") do |other|
      other.gets
      yield other
    end
  end

  # Yields a command that runs until another task has had FEW turns.
  def assert_runs_beside
    with_fifo do |path|
      File.open(path, "r+") { |fifo| assert_runs(-> { fifo.syswrite("\n") }) { yield "read line < #{path}" } }
    end
  end

  def assert_runs(release, &block)
    turns = turns_beside(->(turn) { release.call if turn == FEW }, &block)
    assert_operator turns, :>=, FEW
  end

  def with_fifo
    Dir.mktmpdir do |folder|
      File.mkfifo(path = "#{folder}/fifo")
      yield path
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "tmpdir"

class BackendChoiceTest < Minitest::Test
  include LoopHelpers

  # The number of the system call is the same on every architecture of Linux.
  IO_URING_SETUP = 425
  ASK = "puts Heddle::Scheduler.backends.join(' '), Heddle.run { Heddle.spawn { sleep(0.001) }.value && Fiber.scheduler.backend }"

  def test_the_forced_backend_is_used
    Heddle::Scheduler.backends.each do |name|
      assert_equal name, assert_child(ASK, env: {"HEDDLE_BACKEND" => name}).lines.last.chomp
    end
  end

  def test_without_one_the_best_is_used
    [nil, ""].each do |value|
      names, used = assert_child(ASK, env: {"HEDDLE_BACKEND" => value}).lines(chomp: true)
      assert_equal names.split.first, used
    end
  end

  def test_an_unknown_backend
    outcome = in_child(<<~RUBY, env: {"HEDDLE_BACKEND" => "kqueue"})
      Heddle.run { puts "ran" }
    RUBY
    assert_includes outcome.err, "ArgumentError"
    assert_includes outcome.err, "HEDDLE_BACKEND=kqueue"
    Heddle::Scheduler.backends.each { |name| assert_includes outcome.err, name }
    assert_empty outcome.out
  end

  def test_a_kernel_that_refuses_io_uring_and_nothing_forced
    [Errno::EPERM, Errno::ENOSYS].each do |error|
      names, used = refusing(error) { |launcher| assert_child(ASK, env: {"HEDDLE_BACKEND" => nil}, launcher: launcher) }.lines(chomp: true)
      refute_includes names.split, "uring"
      assert_equal (Heddle::Scheduler.backends - ["uring"]).first, used
    end
  end

  def test_a_kernel_that_refuses_io_uring_which_is_forced
    skip "this build has no io_uring" unless Heddle::Scheduler.backends.include?("uring")
    outcome = refusing(Errno::EPERM) do |launcher|
      in_child(<<~RUBY, env: {"HEDDLE_BACKEND" => "uring"}, launcher: launcher)
        begin
          Heddle.run { puts "ran" }
        rescue Heddle::BackendUnavailable => error
          puts error.message
        end
        p Fiber.scheduler
        ENV["HEDDLE_BACKEND"] = "epoll"
        puts Heddle.run { Heddle.spawn { sleep(0.001) && Fiber.scheduler.backend }.value }
      RUBY
    end
    message, scheduler, after = outcome.out.lines(chomp: true)
    assert_match(/HEDDLE_BACKEND=uring.*refuses.*Operation not permitted.*Unset.*epoll/, message)
    assert_equal %w[nil epoll], [scheduler, after]
  end

  private

  # Yields what is to be put before a command, so that it runs without io_uring.
  def refusing(error)
    compiler = %w[cc gcc clang].find { |name| system(name, "--version", out: File::NULL, err: File::NULL) }
    skip "no C compiler to build the launcher that refuses io_uring" unless compiler
    Dir.mktmpdir do |folder|
      launcher = File.join(folder, "refuse_syscall")
      assert system(compiler, "-o", launcher, File.join(ROOT, "test/support/refuse_syscall.c")), "the launcher does not compile"
      command = [launcher, IO_URING_SETUP.to_s, error::Errno.to_s]
      skip "this machine does not let a process filter its system calls" unless system(*command, "true", err: File::NULL)
      yield command
    end
  end
end

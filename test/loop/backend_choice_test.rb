# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/refusals"

class BackendChoiceTest < Minitest::Test
  include LoopHelpers
  include Refusals

  ASK = "puts Heddle::Scheduler.backends.join(' '), Heddle.run { Heddle.spawn { sleep(0.001) }.value && " \
    "Fiber.scheduler.backend }"

  def test_the_forced_backend_is_used
    Heddle::Scheduler.backends.each do |name|
      assert_equal name, assert_child(ASK, env: {"HEDDLE_BACKEND" => name}).lines.last.chomp
    end
  end

  def test_without_a_forced_backend_the_best_is_used
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

  def test_a_refused_io_uring_with_no_backend_forced
    [Errno::EPERM, Errno::ENOSYS].each do |error|
      names, used = refusing(IO_URING_SETUP, error) { |launcher|
        assert_child(ASK, env: {"HEDDLE_BACKEND" => nil}, launcher: launcher)
      }.lines(chomp: true)
      refute_includes names.split, "uring"
      assert_equal (Heddle::Scheduler.backends - ["uring"]).first, used
    end
  end

  def test_a_refused_io_uring_that_was_forced
    skip "this build has no io_uring" unless Heddle::Scheduler.backends.include?("uring")
    outcome = refusing(IO_URING_SETUP, Errno::EPERM) do |launcher|
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
end

# frozen_string_literal: true

require "test_helper"
require "shared/timeouts"
require "heddle/timeout"

runs_on backends: :one

class TimeoutOnTheHelperTest < Minitest::Test
  include Shared::Timeouts

  mode :thread

  def inside(&block) = in_thread(&block)

  def test_no_thread_but_the_helper
    out = assert_child(<<~RUBY)
      require "heddle/timeout"
      Timeout.timeout(10) { puts Thread.list.map(&:name).compact }
    RUBY
    assert_equal "heddle deadlines\n", out
  end

  def test_code_that_computes_is_interrupted
    assert_within(5) do
      assert_raises(Timeout::Error) { in_thread { Timeout.timeout(0.02) { loop { 1 + 1 } } } }
    end
  end

  # As many as these threads get done in two seconds.
  def test_timeouts_that_expire_at_their_end
    stop = false
    outcomes = Array.new(4) do |number|
      Thread.new do
        random = Random.new(number)
        fired = []
        until stop
          fired << begin
            Timeout.timeout(0.00005, random.rand(2).zero? ? nil : IOError) { Thread.pass while random.rand(6) != 0 }
            Thread.pass if random.rand(10).zero?
            false
          rescue Timeout::Error, IOError
            true
          end
        end
        fired
      end
    end
    sleep(2)
    stop = true
    outcomes = outcomes.flat_map(&:value)
    refute_predicate Thread.current, :pending_interrupt?
    assert_includes outcomes, false
  end

  # The helper makes the message, by code of the program's.
  def test_a_message_that_waits_until_the_block_has_ended
    asked = false
    ended = Thread::Queue.new
    message = Object.new
    message.define_singleton_method(:to_s) do
      asked = true
      ended.pop
      "too late"
    end
    in_thread do
      Timeout.timeout(0.01, nil, message) { wait_until { asked } }
      ended << true
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { sleep } } # by the same helper
    end
  end

  def test_shared_timers_can_be_switched_off
    Heddle::TimeoutSupport.disable
    refute_predicate Heddle::TimeoutSupport, :enabled?
    assert_raises(Timeout::Error) { Timeout.timeout(0.02) { sleep } }
    Heddle::TimeoutSupport.disable
    Heddle::TimeoutSupport.enable
    assert_predicate Heddle::TimeoutSupport, :enabled?
    assert_raises(Timeout::Error) { Timeout.timeout(0.02) { sleep } }
  end

  def test_a_timeout_does_not_reach_into_a_shield
    steps = []
    assert_raises(Timeout::Error) do
      in_thread do
        Timeout.timeout(0.02) do
          Heddle.shield(20) { sleep(0.1) && steps << :shielded }
          sleep
        end
      end
    end
    assert_equal [:shielded], steps
  end

  # Ruby 3.1's own timeout, which no bundle has replaced.
  def test_the_timeout_library_bundled_with_ruby
    out = assert_child(<<~RUBY)
      require "heddle/timeout"
      rescued = []
      try = lambda do
        begin
          Timeout.timeout(0.02) do
            begin
              sleep
            rescue Exception => error
              rescued << error.class
              raise
            ensure
              puts "ensured"
            end
          end
        rescue Timeout::Error => error
          puts error.class, error.message
        end
        begin
          Timeout.timeout(0.02) do
            begin
              Timeout.timeout(10) { sleep }
            rescue Timeout::Error
              puts "wrong"
            end
          end
        rescue Timeout::Error
          puts "outer"
        end
      end
      try.call
      Heddle.run { try.call }
      puts rescued.uniq == (defined?(Timeout::ExitException) ? [Timeout::ExitException] : [])
    RUBY
    assert_equal %w[ensured Timeout::Error execution\ expired outer] * 2 + ["true"], out.lines(chomp: true)
  end
end

class TimeoutInTasksTest < Minitest::Test
  include Shared::Timeouts

  mode :fiber

  def inside
    Heddle.run do
      yield
    ensure
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  private

  def concurrently(&block) = Heddle.spawn(&block)
end

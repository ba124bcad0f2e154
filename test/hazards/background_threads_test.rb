# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Threads that Heddle makes for the whole process, when the one that happens to make them masks all interrupts, has
# another priority, a group of its own and a fiber storage: they take over none of it.
class BackgroundThreadsTest < Minitest::Test
  include LoopHelpers

  mode :thread

  MAKER = <<~RUBY
    def made_by_a_masked_thread
      Thread.new do
        Thread.current.priority = -3
        ThreadGroup.new.add(Thread.current)
        Fiber[:secret] = "secret" if Fiber.respond_to?(:[]=)
        Thread.handle_interrupt(Object => :never) { yield }
      end.value
    end

    def thread_named(name)
      sleep 0.001 until (found = Thread.list.find { |thread| thread.name == name })
      found
    end

    def secret = Fiber.respond_to?(:[]) ? Fiber[:secret].inspect : "nil"

    def settled(thread)
      give_up = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 10
      until thread.priority.zero? && thread.group == ThreadGroup::Default
        raise "its priority is \#{thread.priority}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > give_up
        Thread.pass
      end
    end

    def ends_when_killed(thread) = puts(thread.kill.join(10) ? "ended" : "cannot be killed")
  RUBY

  def test_the_helper_for_deadlines
    assert_equal "nil\nended\n", assert_child(<<~RUBY)
      require "heddle/timeout"
      #{MAKER}
      made_by_a_masked_thread { Heddle.deadline(60) {} }
      error = Class.new(StandardError) { define_singleton_method(:exception) { |*| new(secret) } }
      begin
        Timeout.timeout(0.01, error) { sleep }
      rescue error
        puts $!.message
      end
      Thread.new { Heddle.deadline(600) { sleep } } # so that it does not end by itself
      helper = thread_named("heddle deadlines")
      settled(helper)
      ends_when_killed(helper)
    RUBY
  end

  def test_the_threads_of_offload
    assert_equal "ended\nnil\n", assert_child(<<~RUBY)
      #{MAKER}
      working, thread = Thread::Queue.new, nil
      made_by_a_masked_thread do
        Heddle.run { Heddle.offload { thread = Thread.current } }
      end
      settled(thread)
      another = Thread.new do
        Heddle.run { Heddle.offload { working << Thread.current && sleep } }
      rescue ThreadError
        nil
      end
      abort "it is another thread" unless working.pop == thread
      ends_when_killed(thread)
      another.join
      puts Thread.new { Heddle.run { Heddle.offload { secret } } }.value
    RUBY
  end

  # Ruby refuses to move a thread out of a group that is frozen, or into one that is enclosed.
  def test_groups_that_are_closed
    assert_equal "served\nserved\n", assert_child(<<~RUBY)
      2.times do |closes_default|
        Thread.new do
          group = ThreadGroup.new
          group.add(Thread.current)
          (closes_default == 1) ? ThreadGroup::Default.enclose : group.freeze
          Heddle.background_thread { puts "served" }
        end.join
      end
    RUBY
  end

  def test_a_wait_for_any_child_ends_when_its_task_is_cancelled
    assert_equal "cancelled\n", assert_child(<<~RUBY)
      child = spawn("sleep 60")
      Heddle.run do
        task = Heddle.spawn { Thread.handle_interrupt(Object => :never) { Process::Status.wait(-1) } }
        sleep 0.01
        Heddle.deadline(10) { task.cancel.wait }
        puts task.status
      end
      Process.kill(:KILL, child)
      Process.wait(child)
    RUBY
  end
end

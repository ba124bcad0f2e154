# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "tmpdir"

# Waits of Ruby's that reach the scheduler in other ways: loading, and waits of blocking fibers (a thread's root
# fiber, an Enumerator's on Ruby 3.1) beside a loop.
class RubysOwnWaitsTest < Minitest::Test
  include LoopHelpers

  # In a thread of its own, whose root fiber is blocking; and in such a fiber within a task.
  BLOCKING = {
    root: ->(&wait) { Thread.new { Fiber.set_scheduler(Heddle::Scheduler.new) && wait.call } },
    fiber: ->(&wait) { Thread.new { Heddle.run { Fiber.new(blocking: true, &wait).resume } } },
    enumerator: ->(&wait) { Thread.new { Heddle.run { Enumerator.new { |yielder| yielder << wait.call }.next } } }
  }.freeze

  # Ruby must wake the thread there, not the scheduler, which does not know of such a wait.
  BLOCKING.each do |where, start|
    define_method("test_a_#{where}_that_waits_is_woken_by_another_thread") do
      queue, mutex, condition = Thread::Queue.new, Thread::Mutex.new, Thread::ConditionVariable.new
      waits = [-> { queue.pop }, -> { mutex.synchronize { :locked } }, -> { Thread.new { :joined }.value },
        -> { Thread::Mutex.new.then { |own| own.synchronize { condition.wait(own) } } && :signalled }]
      mutex.lock
      threads = waits.map { |wait| start.call(&wait) }
      # An Enumerator's fiber waits in the loop, where Ruby allows that.
      wait_until { threads.values_at(0, 1, 3).all? { |thread| thread.status == "sleep" } }
      queue << :popped
      mutex.unlock
      condition.signal
      threads.each { |thread| assert thread.join(stretched(5)), "it was not woken" }
      assert_equal %i[popped locked joined signalled], threads.map(&:value)
    end
  end

  # Nobody could unlock it meanwhile. Ruby reports that in one way or the other.
  def test_a_blocking_fiber_cannot_wait_for_a_lock_of_a_task
    out = assert_child(<<~RUBY)
      mutex = Thread::Mutex.new
      Heddle.run do
        Heddle.spawn { mutex.synchronize { sleep(0.01) } }
        Fiber.new(blocking: true) { mutex.lock }.resume
      rescue Exception => error
        puts error.message.downcase.include?("deadlock")
      end
      puts mutex.locked?
    RUBY
    assert_equal %w[true false], out.split
  end

  LOOKED = Thread::Queue.new # while the file is loaded, which waits for that

  def test_a_file_that_waits_while_several_tasks_require_it
    with_feature("RubysOwnWaitsTest::LOOKED.pop\nHeddleRequired = true") do |path|
      Heddle.run do
        loaded = Array.new(3) { Heddle.spawn { [require(path), HeddleRequired] } }
        beside = Heddle.spawn { Object.const_defined?(:HeddleRequired).tap { LOOKED << true } }
        refute beside.value, "the file was not waited for"
        assert_equal [[true, true], [false, true], [false, true]], loaded.map(&:value)
      end
    end
  ensure
    Object.send(:remove_const, :HeddleRequired)
  end

  # Up to Ruby 3.1 a lazy load belongs to a thread: Ruby takes the thread's other fibers for the loading one, which
  # does not see the constant yet (https://github.com/ruby/ruby/pull/5788). A limit.
  def test_a_file_that_waits_while_several_tasks_need_its_constant
    with_feature("sleep(0.02)\nHeddleLoadedLazily = 1") do |path|
      Object.autoload(:HeddleLoadedLazily, path)
      Heddle.run do
        found = Array.new(3) do
          Heddle.spawn do
            HeddleLoadedLazily
          rescue NameError
            :unknown
          end
        end
        others = ruby_at_least?("3.2") ? 1 : :unknown
        assert_equal [1, others, others], found.map(&:value)
      end
    end
  ensure
    Object.send(:remove_const, :HeddleLoadedLazily)
  end

  private

  def with_feature(code)
    Dir.mktmpdir do |folder|
      path = "#{folder}/feature.rb"
      File.write(path, code)
      yield path
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "open3"
require "support/loop_helpers"

class LifecycleTest < Minitest::Test
  include LoopHelpers

  def test_run_returns_the_value_of_its_block
    assert_equal 42, Heddle.run { 42 }
    assert_nil Heddle.run {}
    assert_equal [1, 2], Heddle.run { [Heddle.spawn { sleep(0.001) && 1 }.value, 2] }
  end

  def test_run_waits_for_all_its_tasks
    ended = []
    value = Heddle.run do
      Heddle.spawn do
        sleep(0.01)
        Heddle.spawn { sleep(0.01) && ended << :grandchild }
        ended << :child
      end
      Fiber.schedule { sleep(0.03) && ended << :scheduled }
      :value
    end
    assert_equal [:value, %i[child grandchild scheduled]], [value, ended.sort]
  end

  def test_no_scheduler_is_left_after_a_run
    Heddle.run { assert_kind_of Heddle::Scheduler, Fiber.scheduler }
    assert_nil Fiber.scheduler
    assert_raises(IOError) { Heddle.run { raise IOError } }
    assert_nil Fiber.scheduler
  end

  def test_a_task_runs_at_once_until_it_waits
    order = []
    Heddle.run do
      Heddle.spawn do
        order << 1
        sleep(0)
        order << 3
      end
      order << 2
    end
    assert_equal [1, 2, 3], order
  end

  def test_status_and_name
    Heddle.run do
      task = Heddle.spawn(name: :worker) do
        assert_equal :running, Heddle::Task.current.status
        sleep(0)
        7
      end
      assert_equal ["worker", :waiting, false], [task.name, task.status, task.ended?]
      assert_match(/\A#<Heddle::Task \d+ "worker" waiting>\z/, task.inspect)
      assert_equal [7, :completed, true, nil], [task.value, task.status, task.ended?, task.error]
      assert_nil Heddle.spawn {}.name
    end
    assert_nil Heddle::Task.current
  end

  def test_a_value_can_be_read_many_times_and_after_the_run
    task = Heddle.run do
      task = Heddle.spawn { sleep(0.001) && :value }
      assert_equal [:value] * 3, Array.new(3) { Heddle.spawn { task.value } }.map(&:value)
      task
    end
    assert_equal :value, task.value
    assert_same task, task.wait
    assert_same task, task.wait(0)
  end

  def test_a_value_read_from_another_thread
    tasks = Thread::Queue.new
    runner = Thread.new { Heddle.run { tasks << Heddle.spawn { sleep(0.02) && :value } } }
    assert_equal :value, tasks.pop.value
    runner.join
  end

  # What must work with nothing else of Heddle's required.
  ALONE = {
    "scheduler" => "Thread.new { Fiber.set_scheduler(Heddle::Scheduler.new); Fiber.schedule { sleep(0) && " \
      "Heddle.deadline(1) {} } }.join",
    "timeout" => "Timeout.timeout(1) {}",
    "run" => "Heddle.run { Heddle.spawn { sleep(0) }.value }",
    "fiber_pool" => "Heddle::FiberPool.new(1).map([1]) {}",
    "processes" => "Heddle::Processes.new(2).map([1, 2]) {}",
    "map" => "Heddle.map([1]) {}",
    "offload" => "Heddle.offload {}",
    "stream" => "Heddle::Stream.new(UNIXSocket.pair.first).close",
    "memcached" => "Heddle::Memcached.new.close",
    "db" => "Heddle::DB.connect('mysql://127.0.0.1:1') rescue $!.is_a?(SystemCallError) || raise",
    "net_http" => "Heddle::NetHTTP.enabled? || raise"
  }.freeze

  # The task refuses to end, and its run gives it up.
  def test_other_threads_wait_for_a_task_that_never_ends
    pool = Heddle::FiberPool.new(1)
    waiters = []
    warning = stderr_of do
      Heddle.run(grace: 0.01) do
        task = pool.spawn do
          sleep
        rescue Heddle::Cancellation
          retry
        end
        waiters = [-> { task.value }, -> { task.wait }, -> { pool.wait }].map { |wait| in_background(&wait) }
        wait_until(what: "the waits") { waiters.all?(&:stop?) }
        raise IndexError
      end
    rescue IndexError
      nil
    end
    assert_match(/refuses to end/, warning)
    waiters.first(2).each do |waiter|
      assert_raises(Heddle::SchedulerClosed) { waiter.join(stretched(5)) || flunk("it waits for ever") }
    end
    assert waiters.last.join(stretched(5)), "it waits for ever"
    assert_equal 0, pool.statistics[:running]
  end

  def test_every_part_can_be_required_alone
    program = <<~RUBY
      #{ALONE}.each do |part, use|
        pid = fork { require("heddle/\#{part}") && eval(use) }
        puts part unless Process.wait2(pid).last.success?
      end
    RUBY
    assert_equal "", IO.popen([RbConfig.ruby, "-w", "-I#{ROOT}/lib", "-e", program], err: %i[child out], &:read)
  end

  def test_wait_with_a_timeout
    Heddle.run do
      gate = Thread::Queue.new
      task = Heddle.spawn { gate.pop }
      assert_nil assert_within(0.09, at_least: 0.01) { task.wait(0.01) }
      assert_nil task.wait(0)
      gate << 1
      assert_same task, task.wait(10)
    end
  end

  def test_wait_with_a_timeout_from_a_thread_without_a_scheduler
    Heddle.run do
      task = Heddle.spawn { sleep }
      Thread.new { assert_within(1, at_least: 0.02) { refute task.wait(0.02) } }.join
      refute task.wait(0)
      waiter = Thread.new { task.wait(10) }
      sleep(0.001) until waiter.status == "sleep"
      task.cancel
      assert_same task, waiter.value
    end
  end

  # Printing the error as usual fails; the task must end all the same.
  def test_an_error_whose_text_cannot_be_made
    error = IOError.new("has no text")
    def error.full_message(**) = raise(ArgumentError, "no words")
    report = stderr_of do
      assert_same error, assert_raises(IOError) { Heddle.run { Heddle.spawn { raise error } && sleep(0.001) } }
    end
    assert_match(/nobody waits for:\n#{__FILE__}:\d+:in .*: IOError: has no text\n\z/, report)
  end

  # What can be asked of the error is said: a server would see the failure nowhere else.
  def test_an_error_none_of_whose_methods_work
    error = IOError.new("unprintable")
    def error.full_message(**) = raise(ArgumentError, "no words")
    def error.message = raise(ArgumentError, "no words either")
    place = "#{__FILE__}:\\d+:in .*"
    [place, ""].each do |told|
      report = stderr_of do
        assert_same error, assert_raises(IOError) { Heddle.run { Heddle.spawn { raise error } && sleep(0.001) } }
      end
      assert_match(/nobody waits for:\n#{told}: IOError: \n\z/, report)
      def error.backtrace = raise(ArgumentError, "no place")
    end
  end

  # Without a locale, Ruby takes the path of the program for US-ASCII, and RubyGems that of a library for UTF-8.
  def test_reports_and_dumps_without_a_locale
    Dir.mktmpdir do |folder|
      path = File.join(folder, "größe.rb")
      File.write(path, <<~RUBY)
        $LOAD_PATH.unshift("#{folder}/bücher")
        require "heddle"
        Heddle.run do
          Heddle.spawn(name: "müßig") { sleep(0.01) }
          Heddle.spawn { raise "größer" }
          sleep(0)
          Heddle.dump
        end
      RUBY
      environment = {"LC_ALL" => "C", "LANG" => nil, "RUBYOPT" => nil}
      FileUtils.cp_r("#{ROOT}/lib", File.join(folder, "bücher"))
      folders = LoopHelpers.libraries.map { |library| "-I#{library}" }
      _, said, = Open3.capture3(environment, RbConfig.ruby, "--disable=gems", *folders, path)
      said.force_encoding(Encoding::UTF_8)
      assert_match(/nobody waits for:\n#{folder}.*größer/, said)
      assert_match(/ the end of a sleep.*\n    from #{path}:4/, said)
    end
  end

  def test_an_error_in_a_task_does_not_stop_the_others
    others = []
    error = nil
    report = stderr_of do
      error = assert_raises(IOError) do
        Heddle.run do
          5.times { |index| Heddle.spawn { sleep(0.01) && others << index } }
          Heddle.spawn(name: "unlucky") { raise IOError, "alone" }
        end
      end
    end
    assert_equal ["alone", [*0...5]], [error.message, others]
    assert_includes report, "unlucky"
    assert_includes report, "alone"
    assert_includes report, __FILE__
  end

  # Before the run's end: as soon as the others have had their turn.
  def test_an_error_is_reported_at_once
    stderr_of do
      assert_raises(IOError) do
        Heddle.run do
          Heddle.spawn(name: "early") { raise IOError, "now" }
          sleep(0)
          assert_match(/early.*now/m, $stderr.string)
          assert_includes $stderr.string, "nobody waits for"
        end
      end
    end
  end

  def test_an_error_that_was_claimed_meanwhile_is_not_raised_again
    report = stderr_of do
      Heddle.run do
        task = Heddle.spawn { sleep(0.01) && raise(IOError, "asked for") }
        assert_equal "asked for", assert_raises(IOError) { task.value }.message
      end
    end
    assert_empty report
  end

  # A task runs at once, so nobody can have asked for its value before.
  def test_an_error_that_is_claimed_at_the_first_opportunity
    report = stderr_of do
      Heddle.run do
        assert_raises(IOError) { Heddle.spawn { raise IOError, "at once" }.value }
      end
    end
    assert_empty report
  end

  # Also when the block ends without ever giving way.
  def test_all_errors_are_reported_before_the_run_ends
    report = stderr_of do
      assert_raises(IOError) { Heddle.run { 3.times { |index| Heddle.spawn { raise IOError, "number #{index}" } } } }
    end
    assert_equal %w[0 1 2], report.scan(/number (\d)/).flatten
  end

  # Printed, since nobody waited at that time; not raised, since the value was asked for before the run's end.
  def test_an_error_that_is_claimed_later
    report = stderr_of do
      Heddle.run do
        task = Heddle.spawn { raise IOError, "early" }
        sleep(0)
        assert_raises(IOError) { task.value }
      end
    end
    assert_includes report, "early"
  end

  def test_wait_does_not_claim_the_error
    stderr_of do
      assert_raises(IOError) { Heddle.run { Heddle.spawn { sleep(0.01) && raise(IOError) }.wait } }
    end
  end

  def test_the_first_of_several_errors_is_raised_and_all_are_reported
    report = stderr_of do
      error = assert_raises(RuntimeError) do
        Heddle.run { 3.times { |index| Heddle.spawn { sleep(0.001 * (index + 1)) && raise("number #{index}") } } }
      end
      assert_equal "number 0", error.message
    end
    assert_equal %w[0 1 2], report.scan(/number (\d)/).flatten
  end

  def test_report_on_exception_can_be_switched_off_as_for_threads
    report = stderr_of do
      Thread.new do
        Thread.current.report_on_exception = false
        assert_raises(IOError) { Heddle.run { Heddle.spawn { raise IOError } } }
      end.join
    end
    assert_empty report
  end

  def test_an_error_that_leaves_the_block_cancels_the_tasks
    ensured = []
    report = stderr_of do
      error = assert_raises(IOError) do
        Heddle.run do
          3.times do |index|
            Heddle.spawn do
              sleep
            ensure
              sleep(0.001)
              ensured << index
            end
          end
          raise IOError, "out of the block"
        end
      end
      assert_equal "out of the block", error.message
    end
    assert_equal [0, 1, 2], ensured.sort
    assert_empty report
  end

  # None of them can leave its fiber: Ruby raises, as in threads.
  def test_break_throw_and_return_out_of_the_block
    ensured = []
    leave = {
      throw: -> { catch(:out) { Heddle.run { (throw :out) && flunk } } },
      break: -> { Heddle.run { break } },
      return: -> { run_that_returns(ensured) },
      pool: -> { Heddle::FiberPool.new(1).map([1]) { break } }
    }
    leave.each { |how, way| assert_raises((how == :throw) ? UncaughtThrowError : LocalJumpError, how.to_s, &way) }
    assert_equal [:left], ensured
    assert_nil Fiber.scheduler
  end

  def run_that_returns(ensured)
    Heddle.run do
      return
    ensure
      ensured << :left
    end
  end
  private :run_that_returns

  def test_cancelling_a_waiter_does_not_cancel_the_task
    Heddle.run do
      task = Heddle.spawn { sleep(0.02) && :value }
      waiter = Heddle.spawn { task.value }
      waiter.cancel.wait
      assert_equal %i[cancelled waiting], [waiter.status, task.status]
      assert_equal :value, task.value
    end
  end

  def test_a_task_waits_for_itself
    Heddle.run do
      task = Heddle.spawn { assert_raises(ThreadError) { Heddle::Task.current.value }.message }
      assert_includes task.value, "own end"
    end
  end

  def test_a_nested_run_waits_for_its_own_tasks_only
    order = []
    Heddle.run do
      outer = Heddle.spawn { sleep(0.2) && order << :outer }
      value = Heddle.run do
        Heddle.spawn { sleep(0.01) && order << :inner }
        :nested
      end
      assert_equal :nested, value
      order << :nested_ended
      assert_equal :waiting, outer.status
    end
    assert_equal %i[inner nested_ended outer], order
  end

  def test_an_error_in_a_nested_run_is_raised_there
    Heddle.run do
      outer = Heddle.spawn { sleep(0.02) && :unharmed }
      inner = nil
      assert_raises(IOError) do
        Heddle.run do
          inner = Heddle.spawn { sleep }
          raise IOError
        end
      end
      assert_equal :cancelled, inner.status
      assert_equal :unharmed, outer.value
    end
  end

  def test_runs_side_by_side_in_one_loop
    Heddle.run do
      totals = Array.new(10) do |index|
        Heddle.spawn { Heddle.run { Array.new(10) { |n| Heddle.spawn { sleep(0.001) && n * index } }.sum(&:value) } }
      end
      assert_equal Array.new(10) { |index| 45 * index }, totals.map(&:value)
    end
  end

  def test_cancelling_the_task_that_called_a_nested_run_cancels_its_tasks
    Heddle.run do
      inner = nil
      outer = Heddle.spawn { Heddle.run { (inner = Heddle.spawn { sleep }) && sleep } }
      outer.cancel.wait
      assert_equal %i[cancelled cancelled], [outer.status, inner.status]
    end
  end

  def test_cancelling_the_block_of_a_run
    error = assert_raises(Heddle::TaskCancelled) { Heddle.run { Heddle::Task.current.cancel } }
    assert_kind_of Heddle::Error, error
  end

  def test_in_a_thread
    assert_equal [1, 2, 3], Array.new(3) { |index| Thread.new { Heddle.run { sleep(0.01) && index + 1 } } }.map(&:value)
  end

  def test_a_run_in_a_fiber_that_is_not_the_root
    fiber = Fiber.new do
      got = Heddle.run { Heddle.spawn { sleep(0.001) && :inside }.value }
      Fiber.yield(got)
      :ended
    end
    assert_equal :inside, fiber.resume
    assert_equal :ended, fiber.resume
  end

  def test_a_run_in_an_enumerators_fiber
    numbers =
      Enumerator.new { |y| 3.times { |index| y << Heddle.run { Heddle.spawn { sleep(0.001) && index }.value } } }
    assert_equal [0, 1, 2], [numbers.next, numbers.next, numbers.next]
  end

  def test_an_error_out_of_the_block_ends_the_program_as_usual
    outcome = in_child("Heddle.run { raise 'plain' }")
    assert_equal 1, outcome.status.exitstatus
    assert_equal 1, outcome.err.scan("plain").size, outcome.err
  end

  def test_tasks_started_while_the_run_ends
    ended = []
    Heddle.run do
      Heddle.spawn do
        sleep
      ensure
        Heddle.spawn { sleep(0.001) && ended << :late }
      end.cancel
    end
    assert_equal [:late], ended
  end

  def test_two_thousand_runs_leave_nothing_open
    GC.start # what other tests left
    before = descriptor_count
    2_000.times { |index| assert_equal index, Heddle.run { index } }
    assert_operator descriptor_count, :<=, before
  end
end

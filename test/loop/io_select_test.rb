# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "heddle/timeout"

class IOSelectTest < Minitest::Test
  include LoopHelpers

  def test_other_tasks_run_during_a_select
    with_pair do |reader, writer|
      Heddle.run do
        selector = Heddle.spawn { IO.select([reader], nil, nil, 10) }
        assert_equal :waiting, selector.status
        assert_equal :ran, Heddle.spawn { sleep(0.001) && :ran }.value
        writer.write("x")
        assert_equal [[reader], [], []], selector.value
      end
    end
  end

  # A signal may arrive at any moment of the system call; and at more of them where the kernel takes fewer entries, so
  # that there are more calls.
  def test_signals_do_not_interrupt_a_select_that_does_not_wait
    few = "Process.setrlimit(:NOFILE, 64, Process.getrlimit(:NOFILE).last)"
    [[1, 100_000, ""], [300, 30_000, few]].each do |entries, calls, limit|
      out = assert_child(<<~RUBY)
        reader, writer = IO.pipe
        trap("USR1") {}
        parent = Process.pid
        sender = fork do
          3_000_000.times { Process.kill(:USR1, parent) }
        ensure
          exit!
        end
        #{limit}
        found = Heddle.run { Array.new(#{calls}) { IO.select([reader] * #{entries}, nil, nil, 0) } }
        writer.close
        Process.kill(:KILL, sender)
        Process.wait(sender)
        p found.compact.size
      RUBY
      assert_equal "0", out.strip
    end
  end

  # IO.select under other names, which Ruby defines apart from it.
  def test_select_of_kernel
    {private: ->(*lists) { select(*lists) }, function: ->(*lists) { Kernel.select(*lists) }}.each do |name, call|
      with_pair do |reader, writer|
        Heddle.run do
          selector = Heddle.spawn { call.call([reader], nil, nil, 10) }
          assert_equal :waiting, selector.status, name
          writer.write("x")
          assert_equal [[reader], [], []], selector.value
          assert_nil call.call([reader], [], [], 0) if reader.read_nonblock(1)
        end
        assert_nil call.call([reader], nil, nil, 0.001)
      end
    end
    assert_raises(NoMethodError) { Object.new.select([]) }
    assert_equal [2], [1, 2].select(&:even?)
  end

  def test_timeouts
    with_pair do |reader, _|
      Heddle.run do
        [0, 0.0].each { |zero| assert_nil IO.select([reader], nil, nil, zero) }
        [0.02, 1/50r].each do |timeout|
          assert_nil assert_within(1, at_least: 0.02) { IO.select([reader], nil, nil, timeout) }
        end
        assert_nil IO.select(nil, nil, nil, 0.001)
        assert_nil IO.select([], [], [], 0.001)
        assert_equal 0, Fiber.scheduler.statistics[:timers]
      end
    end
  end

  def test_all_three_lists
    with_pair do |here, there|
      with_pair do |other, its_peer|
        Heddle.run do
          there.write("x")
          assert_equal [[here], [here, other], []], IO.select([here, other], [here, other], [here], 1)
          its_peer.write("y")
          assert_equal [[here, other], [], []], IO.select([here, other], nil, nil, 1)
        end
      end
    end
  end

  def test_a_select_without_a_timeout
    with_pair do |reader, writer|
      Heddle.run do
        selectors = [Heddle.spawn { IO.select([reader]) }, Heddle.spawn { IO.select([reader], nil, nil, nil) }]
        sleep(0.01)
        writer.write("x")
        assert_equal [[[reader], [], []]] * 2, selectors.map(&:value)
      end
    end
  end

  # Ruby has read the bytes ahead: the kernel knows nothing of them.
  def test_buffered_data
    with_pair do |reader, writer|
      with_pair do |empty, _|
        Heddle.run do
          writer.write("line 1\nline 2\n")
          assert_equal "line 1\n", reader.gets
          assert_equal [[reader], [], []], assert_within(1) { IO.select([reader], nil, nil, 10) }
          assert_equal [[reader], [writer], []], IO.select([empty, reader], [writer], nil, 10)
          assert_equal [[reader], [], []], IO.select([reader], nil, nil)
          assert_equal "line 2\n", reader.gets
          assert_nil IO.select([reader], nil, nil, 0)
        end
      end
    end
  end

  def test_the_same_io_twice_and_in_several_lists
    with_pair do |reader, writer|
      Heddle.run do
        selector = Heddle.spawn { IO.select([reader, reader], nil, [reader], 10) }
        writer.write("x")
        assert_equal [[reader, reader], [], []], selector.value
        assert_equal [[reader], [reader], []], IO.select([reader], [reader], nil, 10)
      end
    end
  end

  def test_a_select_of_many_descriptors
    with_descriptors(2_300, least: 300) do |limit|
      ends = Array.new([1000, (limit - 100) / 2].min) { UNIXSocket.pair }
      Heddle.run do
        readers = ends.map(&:first)
        selector = Heddle.spawn { IO.select(readers, nil, nil, 10) }
        [3, ends.size - 1].each { |index| ends[index].last.write("x") }
        first = selector.value[0]
        refute_empty first
        assert_empty first - [readers[3], readers[-1]]
        assert_equal [readers[3], readers[-1]], IO.select(readers, nil, nil, 0)[0]
        50.times { assert_nil IO.select(readers[4..-2], nil, nil, 0.0001) }
      end
    ensure
      ends&.flatten&.each(&:close)
    end
  end

  def test_several_tasks_select_the_same_descriptor_beside_a_reader
    with_pair do |reader, writer|
      Heddle.run do
        selectors = Array.new(3) { Heddle.spawn { IO.select([reader], nil, nil, 10) } }
        waiter = Heddle.spawn { reader.wait_readable(10) }
        selectors.first.cancel.wait
        writer.write("x")
        assert_equal [[[reader], [], []]] * 2, selectors.drop(1).map(&:value)
        assert_same reader, waiter.value
      end
    end
  end

  # The arguments respond to to_io, and the result contains the arguments themselves.
  def test_objects_with_to_io
    wrapper = Struct.new(:to_io)
    with_pair do |reader, writer|
      Heddle.run do
        wrapped = wrapper.new(reader)
        writer.write("x")
        assert_same wrapped, IO.select([wrapped], nil, nil, 10)[0][0]
      end
    end
  end

  def test_regular_files_are_ready
    File.open(__FILE__) do |file|
      with_pair do |reader, _|
        Heddle.run { assert_equal [[file], [], []], assert_within(1) { IO.select([reader, file], nil, nil, 10) } }
      end
    end
  end

  def test_a_list_that_changes_during_the_select
    with_pair do |reader, writer|
      Heddle.run do
        list = [reader]
        selector = Heddle.spawn { IO.select(list, nil, nil, 10) }
        list.clear
        GC.start
        writer.write("x")
        assert_equal [[reader], [], []], selector.value
      end
    end
  end

  def test_a_closed_io_among_others
    with_pair do |reader, _|
      with_pair do |closed, _|
        closed.close
        Heddle.run do
          assert_raises(IOError) { IO.select([reader, closed], nil, nil, 1) }
          assert_raises(IOError) { IO.select([reader], [closed], nil, 0) }
          assert_nil IO.select([reader], nil, nil, 0.001)
        end
      end
    end
  end

  # The exception is made, or reported, by Ruby code that waits: the select's descriptors have no part in that wait.
  def test_an_interrupted_select_whose_exception_waits_in_its_turn
    with_pair do |reader, writer|
      with_pair do |log, into|
        answer = nil
        slow = Class.new(StandardError) do
          define_method(:initialize) do |*arguments|
            answer = :waits
            answer = log.wait_readable
            super(*arguments)
          end
        end
        Heddle.run do
          task = Heddle.spawn { Timeout.timeout(0.01, slow) { IO.select([reader]) } }
          sleep(0.001) until answer == :waits
          writer.write("x")
          3.times { sleep(0.001) }
          assert_equal :waits, answer
          into.write("y")
          assert_raises(slow) { task.value }
        end
        assert_same log, answer
      end
    end
  end

  def test_an_interrupted_select_whose_exception_is_reported_by_a_wait
    with_pair do |reader, writer|
      with_pair do |log, into|
        answer = nil
        trace = TracePoint.new(:raise) do |event|
          next if answer || !event.raised_exception.is_a?(Heddle::Cancellation)

          answer = :waits
          answer = log.wait_readable
        end
        Heddle.run do
          task = Heddle.spawn { trace.enable { IO.select([reader]) } }
          task.cancel
          sleep(0) until answer == :waits
          writer.write("x")
          3.times { sleep(0.001) }
          assert_equal :waits, answer
          into.write("y")
          task.wait
        end
        assert_same log, answer
      end
    end
  end

  def test_outside_of_a_run_rubys_own_method_is_called
    with_pair do |reader, writer|
      assert_nil IO.select([reader], nil, nil, 0.001)
      writer.write("x")
      assert_equal [[reader], [], []], IO.select([reader])
      Heddle.run { assert_equal [[reader], [], []], Fiber.new(blocking: true) { IO.select([reader]) }.resume }
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/hosts"

# Values, order, errors of Heddle.map and Heddle::Processes, inside of a run and outside.
class ProcessesMapTest < Minitest::Test
  include LoopHelpers

  # Raised in a worker.
  class Refused < StandardError
    attr_reader :code

    def initialize(message, code)
      super(message)
      @code = code
    end
  end

  # Cannot be dumped.
  class Holding < StandardError
    def initialize(message)
      super
      @lock = Thread::Mutex.new
    end
  end

  # Not a StandardError.
  class Text < String
  end

  class Grave < Exception # rubocop:disable Lint/InheritException
  end

  module Behaviour
    def test_values_in_order_from_several_processes
      in_host do
        values =
          Heddle.map(0...40, fibers: 4, processes: 3) { |item| sleep(0.001 * (item % 5)) && [item * 2, Process.pid] }
        assert_equal (0...40).map { |item| item * 2 }, values.map(&:first)
        pids = values.map(&:last).uniq
        assert_equal 3, pids.size
        refute_includes pids, Process.pid
        assert_no_child
      end
    end

    def test_items_of_every_kind
      in_host do
        assert_equal [], Heddle.map([], processes: 2) { flunk }
        assert_equal [[:a, 1], [:b, 2]], Heddle.map({a: 1, b: 2}, processes: 2) { |pair| pair }
        assert_equal [["a", 0], ["b", 1]],
          Heddle.map(%w[a b].each_with_index, processes: 2) { |letter, index| [letter, index] }
        assert_equal [[["a", 0]], [["b", 1]]], Heddle.map(%w[a b].each_with_index, processes: 2) { |pair| [pair] }
        assert_equal [nil, nil], Heddle.map([nil, false], processes: 2) {}
        assert_equal [1, 2, 3], Heddle.map((1..3).lazy, processes: 2) { |item| item }
        assert_equal ["ä\xff".b, "ä"], Heddle.map(["ä\xff".b, "ä"], processes: 2) { |item| item }
        assert_equal [6], Heddle.map(["x" * 6_000_000], processes: 2) { |item| item.bytesize / 1_000_000 }
      end
    end

    # Values travel many in a frame.
    def test_no_item_that_is_sent_and_no_value_shares_an_object_with_another
      in_host do
        text = +"a"
        list = [text]
        values = Heddle.map([text, text, list, list, text].each, fibers: 5, processes: 2) do |item|
          item << "b"
          item
        end
        assert_equal ["ab", "ab", ["a", "b"], ["a", "b"], "ab"], values
        assert_equal "a", text
        values = Heddle.map([1, 2], fibers: 2, processes: 2) { list }
        refute_same values[0], values[1]
        refute_same values[0][0], values[1][0]
      end
    end

    def test_ranges
      in_host do
        assert_equal [[], [], [1, 2, 3], [1, 2], [-1, 0, 1], %w[a b]],
          [1...1, 2..1, 1..3, 1...3, -1..1.5, "a".."b"].map { |range| Heddle.map(range, processes: 2) { |item| item } }
        [1.., 1..Float::INFINITY].each do |endless|
          assert_equal [1, 2, 3], Heddle::Processes.new(2).stream(endless) { |item| item }.first(3)
        end
        assert_equal [1 << 64, (1 << 64) + 1], Heddle.map((1 << 64)..((1 << 64) + 1), processes: 2) { |item| item }
        twice = Class.new(Range) { def each = super { |item| yield item * 2 } }
        assert_equal [2, 4], Heddle.map(twice.new(1, 2), processes: 2) { |item| item }
      end
    end

    # The workers are forks, and have them.
    def test_the_elements_of_an_array_are_not_sent
      in_host do
        reader, writer = IO.pipe
        writer.write("ab")
        text = +"a"
        list = [-> { 1 }, reader, text, text, Thread::Mutex.new]
        values = Heddle.map(list, fibers: 5, processes: 2) { |item| list.index { |other| other.equal?(item) } }
        assert_equal [0, 1, 2, 2, 4], values
        assert_equal ["abb", "a"],
          [Heddle::Processes.new(1).map([text, text]) { |item| item << "b" }.last, text]
        assert_equal %w[a b], Heddle.map([reader, reader], processes: 2) { |io| io.sysread(1) }.sort
        assert_equal [1, Proc], [list[0].call, Heddle.map([list[0]], processes: 2) { |item| item.class }.first]
      ensure
        [reader, writer].each(&:close)
      end
    end

    # What is removed or replaced meanwhile is an item all the same.
    def test_an_array_that_changes_meanwhile
      in_host do
        list = [*0...20]
        values = []
        Heddle::Processes.new(2, fibers: 2).stream(list, ahead: 4) { |item| item * 2 }.each do |value|
          values << value
          list.fill(:other) if values.size == 1
        end
        assert_equal (0...20).map { |item| item * 2 }, values

        list = [*0...20]
        values.clear
        Heddle::Processes.new(2, fibers: 2).stream(list, ahead: 4) { |item| item * 2 }.each do |value|
          values << value
          list.clear if values.size == 1
        end
        assert_equal (0...20).map { |item| item * 2 }, values
      end
    end

    # As a crawler does.
    def test_elements_that_are_appended_meanwhile
      in_host do
        list = [0]
        values = []
        Heddle::Processes.new(2, fibers: 2).stream(list, ahead: 1) { |item| [item, $$] }.each do |value, _|
          values << value
        end
        assert_equal [0], values
        values.clear
        list = [*0...10]
        Heddle::Processes.new(2, fibers: 2).stream(list, ahead: 3) { |item| item }.each do |value|
          values << value
          list << (value + 10) if value < 5
        end
        assert_equal [*0...15], values
      end
    end

    def test_an_array_with_an_each_of_its_own
      in_host do
        twice = Class.new(Array) { def each = super { |item| yield item * 2 } }
        assert_equal [2, 4], Heddle.map(twice.new([1, 2]), processes: 2) { |item| item }
        list = [1, 2]
        list.define_singleton_method(:each) { |&block| [3].each(&block) }
        assert_equal [3], Heddle.map(list, processes: 2) { |item| item }
        assert_equal [1, 2], Heddle.map(Class.new(Array).new([1, 2]), processes: 2) { |item| item }
      end
    end

    # In each round of the worker's loop about one item ends.
    def test_answers_wait_for_others_while_items_end
      in_host do
        reads = 0
        worker = Heddle::Processes.send(:const_get, :Worker)
        TracePoint.new(:call) { reads += 1 }.enable(target: worker.instance_method(:answers)) do
          Heddle::Processes.new(1, fibers: 50).each(0...1000) { |item| (item % 50).times { sleep(0) } }
        end
        assert_operator reads, :<, 200 # some 260 of answers that do not wait
      end
    end

    # The worker has other items whose end nobody can tell.
    def test_an_answer_does_not_wait_for_other_items
      in_host do
        stream = Heddle::Processes.new(1, fibers: 20).stream(0...20) { |item| (item < 2) ? item : sleep }
        assert_equal [0, 1], Heddle.deadline(20) { stream.first(2) }
      end
    end

    def test_values_of_every_class
      in_host do
        values = [1, 1 << 80, 1.5, nil, true, false, :a, "ä", "\xff".b, "a".encode("UTF-16LE"), [], {1 => [2]}, 1..2,
          3r, Time.at(0)]
        assert_equal values, Heddle.map(values, fibers: 20, processes: 2) { |item| item }
        encodings = Heddle.map(values.grep(String), fibers: 20, processes: 2) { |item| item }.map(&:encoding)
        assert_equal values.grep(String).map(&:encoding), encodings
        odd = +"a"
        odd.instance_variable_set(:@because, -> {})
        assert_raises(Heddle::NotMarshalable) { Heddle.map([odd].each, processes: 2) {} }
        assert_instance_of Text, Heddle.map([Text.new("a")], processes: 2) { |item| item }.first
      end
    end

    def test_one_process_is_this_one
      in_host do
        assert_equal [[1, Process.pid], [2, Process.pid]],
          Heddle.map(1..2, fibers: 2) { |item| sleep(0.001) && [item, Process.pid] }
        assert_equal "two",
          assert_raises(IOError) { Heddle.map(1..3) { |item| (item == 2) ? raise(IOError, "two") : item } }.message
      end
    end

    def test_one_worker
      in_host do
        assert_equal [false, false],
          Heddle::Processes.new(1, fibers: 2).map(1..2) { Process.pid }.map { |pid| pid == Process.pid }
      end
    end

    # Fifty items of 20 ms each would take a second one after another.
    def test_a_worker_runs_its_items_at_once
      in_host do
        assert_within(0.9) do
          assert_equal 50, Heddle.map(1..50, fibers: 25, processes: 2) { |item| sleep(0.04) && item }.size
        end
      end
    end

    def test_no_worker_has_more_items_than_fibers
      in_host do
        now = 0 # each worker has its own
        most = Heddle.map(0...60, fibers: 3, processes: 2) do
          now += 1
          sleep(0.001)
          now.tap { now -= 1 }
        end
        assert_operator most.max, :<=, 3
      end
    end

    # Fixed slices would leave one worker with all slow items.
    def test_items_are_handed_out_on_demand
      in_host do
        done, tell = IO.pipe
        pids = Heddle::Processes.new(2, fibers: 1).map(0...41) do |item|
          item.zero? ? Heddle.deadline(10) { done.read(40) } : tell.write(".")
          Process.pid
        end
        assert_equal 1, pids.count(pids.first), "the worker that was busy got other items"
        [done, tell].each(&:close)
      end
    end

    def test_ten_thousand_items_of_uneven_cost
      in_host do
        expected = (0...10_000).map { |item| [item, (item % 97 == 0)] }
        assert_equal expected, (Heddle.map(0...10_000, fibers: 100, processes: 2) do |item|
          sleep(0.0005 * (item % 7)) if item % 97 == 0
          [item, item % 97 == 0]
        end)
      end
    end

    def test_an_error_has_its_class_its_fields_and_the_workers_backtrace
      in_host do
        error = assert_raises(Refused) {
          Heddle.map(1..20, fibers: 2, processes: 2) { |item| (item == 7) ? refuse(item) : sleep(0.001) }
        }
        assert_equal ["item 7", 7, "the reason", ArgumentError],
          [error.message, error.code, error.cause&.message, error.cause.class]
        assert_includes error.backtrace.first, "refuse"
        assert_includes error.cause.backtrace.first, "refuse"
        assert(error.backtrace.any? { |line| line.include?(__method__.to_s) })
        assert_no_child
      end
    end

    def test_errors_are_returned
      in_host do
        values = Heddle.map(0...20, fibers: 2, processes: 2, errors: :return) do |item|
          item.odd? ? refuse(item) : sleep(0.001) && item
        end
        assert_equal (0...20).step(2).to_a, values.grep(Integer)
        assert_equal (1...20).step(2).to_a, values.grep(Refused).map(&:code)
        assert_equal [1, IOError], Heddle.map([1, 2], errors: :return) { |i| (i == 1) ? i : raise(IOError) }
          .map { |value| value.is_a?(IOError) ? value.class : value }
        assert_kind_of Heddle::NotMarshalable, Heddle.map([1], processes: 2, errors: :return) { -> {} }.first
        assert_raises(Grave) { Heddle.map(1..3, processes: 2, errors: :return) { raise Grave } }
        assert_raises(Heddle::WorkerLost) { Heddle.map(1..3, processes: 2, errors: :return) { exit!(3) } }
        assert_no_child
      end
    end

    def test_the_first_error_cancels_the_rest_in_order
      in_host do
        Dir.mktmpdir do |folder|
          assert_raises(IOError) do
            Heddle.map(0...8, fibers: 4, processes: 2) do |item|
              File.write("#{folder}/began#{item}", "")
              (item == 7) ? sleep(0.1) && raise(IOError) : sleep
            ensure
              File.write("#{folder}/ended#{item}", "")
            end
          end
          began, ended = Dir.children(folder).partition { |name| name.start_with?("began") }
          assert_equal began.map { |name| name.delete_prefix("began") }.sort,
            ended.map { |name| name.delete_prefix("ended") }.sort
          assert_equal 8, ended.size
        end
        assert_no_child
      end
    end

    def test_exceptions_beyond_standard_error
      in_host do
        [Grave, NotImplementedError, SystemStackError, Timeout::Error].each do |kind|
          assert_equal "grave", assert_raises(kind) { Heddle.map(1..3, processes: 2) { raise kind, "grave" } }.message
        end
        assert_raises(UncaughtThrowError) { catch(:tag) { Heddle.map(1..3, processes: 2) { throw :tag } } }
        assert_raises(SystemStackError) { Heddle.map(1..3, processes: 2) { recurse } }
      end
    end

    def test_values_that_marshal_refuses
      in_host do
        error = assert_raises(Heddle::NotMarshalable) { Heddle.map([1, -> {}].each, processes: 2) { 1 } }
        assert_match(/\Aitem 1 \(#<Proc.*\) cannot be sent to a worker process: no _dump_data/, error.message)

        error = assert_raises(Heddle::NotMarshalable) {
          Heddle.map(%w[a b], processes: 2) { |item| (item == "b") ? $stdout : item }
        }
        assert_match(
          /\Athe value of item 1 \("b"\), of the class IO, cannot be sent from its worker process: .* IO/,
          error.message
        )

        error = assert_raises(Heddle::NotMarshalable) { Heddle.map(%w[a], processes: 2) { raise Holding, "tight" } }
        assert_match(
          /\Aitem 0 \("a"\) raised .*Holding: tight, which cannot be sent from its worker process: no _dump_data/,
          error.message
        )
        assert_includes error.backtrace.first, __method__.to_s

        error =
          assert_raises(Heddle::NotMarshalable) { Heddle.map([1], processes: 2) { raise OnlyThere.define, "unknown" } }
        assert_match(/\Aitem 0 \(1\) raised .*OnlyThere::Error: unknown, which .*: undefined class/, error.message)

        error = assert_raises(Heddle::NotMarshalable) { Heddle.map([1], processes: 2) { OnlyThere.define.new("x") } }
        assert_match(/\Athe value of item 0 cannot be loaded from its worker process: undefined class/, error.message)
        assert_no_child
      end
    end

    def test_each_returns_no_values
      in_host do
        reader, writer = IO.pipe
        workers = Heddle::Processes.new(2, fibers: 3)
        assert_same(workers, workers.each(1..20) { |item| writer.syswrite("#{item}\n") && -> { "no use for Marshal" } })
        writer.close
        assert_equal [*1..20], reader.read.split.map(&:to_i).sort
      end
    end

    def test_calls_at_once_and_nested
      in_host do
        values =
          Heddle.map(1..4, processes: 2) { |item| Heddle.map(1..3, fibers: 1, processes: 2) { |inner| item * inner } }
        assert_equal [[1, 2, 3], [2, 4, 6], [3, 6, 9], [4, 8, 12]], values
        assert_no_child
      end
    end

    def test_bad_arguments
      in_host do
        assert_raises(ArgumentError) { Heddle.map([1]) }
        assert_raises(ArgumentError) { Heddle.map([1], processes: 0) {} }
        assert_raises(TypeError) { Heddle.map([1], processes: 1.5) {} }
        assert_raises(ArgumentError) { Heddle.map([1], fibers: 0, processes: 2) {} }
        assert_raises(ArgumentError) { Heddle::Processes.new(2).map([1]) }
        assert_raises(TypeError) { Heddle.map(5, processes: 2) {} }
      end
    end

    def test_an_error_of_the_items_themselves
      in_host do
        items = Enumerator.new { |yielder| (yielder << 1 << 2) && raise(IOError, "no more") }
        assert_equal "no more", assert_raises(IOError) { Heddle.map(items, processes: 2) { sleep } }.message
        assert_no_child
      end
    end

    def test_a_deadline_bounds_map
      in_host do
        assert_within(1.5) do
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { Heddle.map(1..4, processes: 2) { sleep } } }
        end
        left = Heddle.deadline(30) { Heddle.map(1..4, processes: 2) { Heddle.remaining } }
        assert_operator left.min, :>, 10
        assert_operator left.max, :<=, 30
        assert_no_child
      end
    end
  end

  class InARun < ProcessesMapTest
    include Behaviour

    mode :fiber

    def test_other_tasks_keep_running
      Heddle.run do
        ticks = 0
        ticker = Heddle.spawn { loop { sleep(0.002) && ticks += 1 } }
        Heddle.map(1..4, processes: 2) { sleep(0.05) }
        ticker.cancel
        assert_operator ticks, :>, 5
      end
    end

    def test_several_tasks_at_once
      Heddle.run do
        tasks = Array.new(5) { |number|
          Heddle.spawn { Heddle.map(1..6, fibers: 1, processes: 2) { |item| sleep(0.002) && number * item } }
        }
        assert_equal Array.new(5) { |number| (1..6).map { |item| number * item } }, tasks.map(&:value)
      end
      assert_no_child
    end

    def test_a_cancel_ends_the_workers
      Heddle.run do
        task = Heddle.spawn { Heddle.map(1..4, processes: 2) { sleep } }
        sleep(0.05)
        task.cancel
        assert task.wait(5)
        assert_equal :cancelled, task.status
      end
      assert_no_child
    end

    private

    def in_host(&block) = Heddle.run(&block)
  end

  class Blocking < ProcessesMapTest
    include Behaviour

    mode :blocking

    def test_several_threads_at_once
      threads = Array.new(4) { |number|
        Thread.new { Heddle.map(1..6, fibers: 1, processes: 2) { |item| sleep(0.002) && number * item } }
      }
      assert_equal Array.new(4) { |number| (1..6).map { |item| number * item } }, threads.map(&:value)
      assert_no_child
    end

    private

    def in_host = yield
  end

  class UnderAsync < ProcessesMapTest
    mode :fiber

    def test_under_another_scheduler
      skip Hosts.missing(:async) if Hosts.missing(:async)
      Hosts.run(:async) do
        assert_equal [2, 4, 6], Heddle.map(1..3, processes: 2) { |item| sleep(0.001) && item * 2 }
        assert_raises(IOError) { Heddle.map(1..3, processes: 2) { raise IOError } }
      end
      assert_no_child
    end
  end

  private

  def refuse(item)
    raise ArgumentError, "the reason"
  rescue ArgumentError
    raise Refused.new("item #{item}", item)
  end

  def recurse = recurse + 1

  def assert_no_child = assert_raises(Errno::ECHILD) { Process.wait(-1, Process::WNOHANG) }

  # A class that only a worker has.
  module OnlyThere
    def self.define = const_set(:Error, Class.new(StandardError))
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "tempfile"

# IO#close waits until the fibers that wait for the IO have left. A passed deadline or a cancel must not end that
# wait: the descriptor would stay open, and the others would never leave it.
class InterruptedCloseTest < Minitest::Test
  include LoopHelpers

  READS = {
    gets: ->(io) { io.gets },
    read: ->(io) { io.read(1) },
    wait_readable: ->(io) { io.wait_readable }
  }.freeze
  KINDS = {socket: -> { UNIXSocket.pair }, pipe: -> { IO.pipe }}.freeze

  READS.each do |name, read|
    KINDS.each do |kind, make|
      define_method("test_a_deadline_that_has_passed_when_a_#{kind}_is_closed_under_#{name}") do
        closes_under(make, read) do |io|
          Heddle.deadline(0.001) do
            sleep
          ensure
            io.close
          end
        rescue Heddle::DeadlineExceeded
          nil
        end
      end

      define_method("test_a_cancel_when_a_#{kind}_is_closed_under_#{name}") do
        closes_under(make, read) do |io|
          closer = Heddle.spawn { io.close }
          closer.cancel.wait(5) || flunk("the close did not end")
        end
      end
    end
  end

  # A peer that reads nothing, with bytes of ours still unsent; and a child that lives on.
  SLOW = {
    unsent: lambda do |test|
      ours, theirs = UNIXSocket.pair
      [65_536, 1].each do |size|
        nil until ours.write_nonblock("x" * size, exception: false) == :wait_writable
      end
      ours.sync = false
      ours.write("unsent")
      test.send(:keep, theirs)
      ours
    end,
    popen: ->(test) { IO.popen("exec sleep 60").tap { |io| test.send(:child, io.pid) } },
    popen_both_ways: ->(test) { IO.popen("exec sleep 60", "r+").tap { |io| test.send(:child, io.pid) } }
  }.freeze
  ENDS = {
    deadline: ->(close) { Heddle.deadline(0.02) { close.call } },
    timeout: ->(close) { Timeout.timeout(0.02) { close.call } },
    cancel: lambda do |close|
      task = Heddle.spawn { close.call }
      sleep(0.02)
      task.cancel.value
    end,
    deadline_that_has_passed: lambda do |close|
      Heddle.deadline(0.001) do
        sleep
      ensure
        close.call
      end
    end
  }.freeze

  SLOW.each do |kind, make|
    ENDS.each do |name, ending|
      define_method("test_a_close_that_waits_is_ended_by_#{name}_with_#{kind}") do
        Heddle.run do
          io = make.call(self)
          before = descriptor_count
          assert_raises(Timeout::Error, Heddle::TaskCancelled) { assert_within(10) { ending.call(-> { io.close }) } }
          assert_predicate io, :closed?
          assert_operator descriptor_count, :<, before
        end
      end
    end
  end

  def test_the_peer_of_a_close_that_was_ended_sees_the_end
    Heddle.run do
      ours = SLOW[:unsent].call(self)
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.01) { ours.close } }
      refute_includes @kept.last.read, "unsent"
    end
  end

  # As for a plain thread, which Ruby wakes. Each block makes an IO, a wait, and what ends it.
  OTHER_ENDS = {
    reopen_of_a_reader: lambda do |test|
      reader = test.send(:pipe)[0]
      [-> { reader.readpartial(8) }, -> { reader.reopen(test.send(:pipe)[0]) }]
    end,
    reopen_of_a_name: lambda do |test|
      reader = test.send(:pipe)[0]
      [-> { reader.wait_readable }, -> { reader.reopen(File::NULL, "r", external_encoding: "UTF-8") }]
    end,
    close_write_of_a_popen: lambda do |test|
      io = SLOW[:popen_both_ways].call(test)
      [-> { io.write("x" * 200_000) }, -> { io.close_write }]
    end,
    close_read_of_a_popen: lambda do |test|
      io = SLOW[:popen_both_ways].call(test)
      [-> { io.read(1) }, -> { io.close_read }]
    end,
    close_read_of_a_pipe: lambda do |test|
      reader = test.send(:pipe)[0]
      [-> { IO.select([reader]) }, -> { reader.close_read }]
    end,
    close_write_of_a_pipe: lambda do |test|
      writer = test.send(:pipe)[1]
      [-> { writer.write("x" * 200_000) }, -> { writer.close_write }]
    end
  }.freeze

  OTHER_ENDS.each do |name, make|
    define_method("test_#{name}_ends_the_wait") do
      Heddle.run do
        wait, finish = make.call(self)
        waiter = Heddle.spawn do
          wait.call
        rescue IOError => error
          error
        end
        sleep(0.01)
        assert_equal :waiting, waiter.status
        assert_within(10) { Heddle.deadline(5) { finish.call } }
        assert waiter.wait(5), "it still waits"
        assert_kind_of IOError, waiter.value
      end
    end
  end

  def test_a_half_close_of_a_socket_leaves_the_other_half
    Heddle.run do
      ours, theirs = UNIXSocket.pair.each { |io| keep(io) }
      reader = Heddle.spawn { ours.readpartial(8) }
      ours.close_write
      theirs.write("answer")
      assert_equal "answer", reader.value
      file = File.open(File::NULL, "r+")
      keep(file)
      assert_raises(IOError) { file.close_read }
    end
  end

  # Nobody else knows the child.
  {
    popen: ->(note) { IO.popen("exec sleep 60") { |io| note.call(io.pid) } },
    popen_read: ->(note) { IO.popen("echo $$; exec >&-; exec sleep 60") { |io| note.call(io.read.to_i) } },
    backquote: ->(note) { `echo $$ > #{note.call}; exec >&-; exec sleep 60` },
    system: ->(note) { system("echo $$ > #{note.call}; exec sleep 60") }
  }.each do |name, work|
    define_method("test_no_zombie_is_left_of_a_#{name}_whose_wait_was_ended") do
      Tempfile.create("pid") do |file|
        pid = nil
        note = lambda do |number = nil|
          pid = number
          file.path
        end
        Heddle.run do
          task = Heddle.spawn { work.call(note) }
          wait_until { (pid ||= file.tap(&:rewind).read[/\d+\n/]&.to_i) && task.status == :waiting }
          sleep(0.02)
          task.cancel.wait
          Process.kill(:KILL, pid)
          wait_until { !File.exist?("/proc/#{pid}") }
        end
      end
    end
  end

  # The program knows the child, and asks again.
  def test_a_child_whose_process_wait_was_ended_can_be_waited_for
    pid = child(Process.spawn("exec sleep 60"))
    Heddle.run { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.01) { Process.wait(pid) } } }
    Process.kill(:KILL, pid)
    assert_equal pid, Process.wait(pid)
  end

  def setup
    @kept = []
    @children = []
  end

  def teardown
    @kept.each(&:close)
    @children.each do |pid|
      Process.kill(:KILL, pid)
    rescue Errno::ESRCH
      nil
    end
  end

  private

  def pipe = IO.pipe.each { |io| keep(io) }

  def keep(io) = @kept.push(io).last

  def child(pid) = @children.push(pid).last

  def closes_under(make, read)
    GC.start # closes what earlier tests left, which would make the count smaller
    before = descriptor_count
    5.times do
      Heddle.run do
        pair = make.call
        reader = Heddle.spawn do
          read.call(pair[0])
        rescue IOError => error
          error
        end
        yield pair[0]
        assert_predicate pair[0], :closed?
        assert reader.wait(5), "the reader still waits"
        assert_kind_of IOError, reader.value
        pair[1].close
      end
    end
    assert_equal before, descriptor_count
  end
end

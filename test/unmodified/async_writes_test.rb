# frozen_string_literal: true

require "test_helper"
require "support/async_loops"
require "socket"

# A socket's write in a task of Async's: an answer may let the other ready tasks work first, so that what all of them
# write leaves together. Whatever others do to the socket meanwhile finds the answer sent.
class AsyncWritesTest < Minitest::Test
  mode :fiber

  ROUNDS = 100
  WORK = 0.00003 # seconds; a turn of this length lets an answer wait, unless the machine is busy

  def setup
    skip "this Ruby hides what tells whether a write is an ordinary one" if ruby_at_least?("4.1")
  end

  def test_ready_tasks_work_before_an_answer_leaves
    on_heddle do |task|
      waited = (1..20 * ROUNDS).any? do
        events = []
        answer(task, then_do: -> { events << :wrote }) { events << :worked }
        events == %i[worked wrote]
      end
      assert waited
    end
  end

  def test_no_answer_waits_for_turns_that_are_long
    on_heddle do |task|
      events = []
      answer(task, work: 0.003, then_do: -> { events << :wrote }) { events << :worked }
      assert_equal %i[wrote worked], events
    end
  end

  # What another ready task does, and what the peer then reads.
  MEANWHILE = {
    "nothing" => ["answer", proc {}],
    "a close" => ["answer", proc { |near| near.close }],
    "a close by a thread" => ["answer", proc { |near| Thread.new { near.close }.join }],
    "a write" => ["answer, more", proc { |near| near.write(", more") }],
    "a write by a task of Heddle's" => ["answer, more", proc { |near| Heddle.spawn { near.write(", more") }.value }],
    "a write of several objects" => ["answer, more", proc { |near| near.write(", ", "more") }],
    "a line" => ["answer1\n2\n", proc { |near| near.puts(1, 2) }],
    "syswrite" => ["answer, more", proc { |near| near.syswrite(", more") }],
    "a change of the String" => ["answer", proc { |_, text| text.replace("after!") }],
    "the collection of garbage" => ["answer", proc { GC.start }]
  }.freeze

  def test_other_writes_and_closes_come_after_the_answer
    on_heddle do |task|
      MEANWHILE.each do |name, (expected, others)|
        (ROUNDS / 10).times { assert_equal [6, expected], answer(task, &others), name }
      end
    end
  end

  # Async's own loops have sent what a task wrote before it was stopped.
  def test_a_task_that_is_stopped_meanwhile_has_sent_its_answer
    each_loop do |task|
      ROUNDS.times do
        result, read = answer(task) { |_near, _text, writer| writer.stop }
        assert_equal "answer", read
        assert_includes [nil, 6], result
      end
    end
  end

  def test_a_stop_that_is_put_off_lets_the_write_through
    each_loop do |task|
      ROUNDS.times do
        written = nil
        defer = ->(writer, &write) { writer.defer_stop { written = write.call } }
        _, read = answer(task, around: defer) { |_near, _text, writer| writer.stop }
        assert_equal [6, "answer"], [written, read]
      end
    end
  end

  def test_a_timeout_that_is_over_meanwhile
    each_loop do |task|
      limit = ->(writer, &write) { writer.with_timeout(0.0005, &write) }
      (ROUNDS / 5).times { assert_equal [6, "answer"], answer(task, around: limit) { sleep(0.001) } }
    end
  end

  # Bytes that are no answer leave at once, as on Async's own loops: the code behind `async` finds them sent.
  FIRST_BYTES = {
    "a close" => ["a", ->(near, _) { near.close }],
    "the end of sending" => ["a", ->(near, _) { near.close_write }],
    "a shutdown" => ["a", ->(near, _) { near.shutdown(:WR) }],
    "bytes without a wait" => ["ab", ->(near, _) { near.write_nonblock("b") }],
    "bytes by sendmsg" => ["ab", ->(near, _) { near.sendmsg("b") }],
    "a look without a wait" => ["", ->(_, far) { far.read_nonblock(1) }]
  }.freeze

  def test_the_first_bytes_of_a_task_leave_before_others_go_on
    each_loop do |task|
      FIRST_BYTES.each do |name, (expected, others)|
        near, far = UNIXSocket.pair
        writer = task.async { work && near.write("a") }
        others.call(near, far)
        assert_equal 1, writer.wait, name
        near.close
        assert_equal expected, far.read, name
      ensure
        [near, far].each(&:close)
      end
    end
  end

  # The number may be that of a socket from which the task has read before.
  def test_the_first_bytes_to_a_socket_with_the_number_of_another
    each_loop do |task|
      ROUNDS.times do
        old, peer = UNIXSocket.pair
        number = old.fileno
        near = far = nil
        writer = task.async do
          old.readpartial(1)
          old.close
          near, far = UNIXSocket.pair
          work && near.write("a")
        end
        peer.write("?")
        task.yield until near
        assert_equal number, near.fileno
        near.shutdown(:WR)
        assert_equal [1, "a"], [writer.wait, far.read]
      ensure
        [old, peer, near, far].each { |socket| socket&.close }
      end
    end
  end

  # Whatever tasks write to a socket leaves in the order of their calls, as on Async's own loop with epoll.
  def test_many_tasks_that_write_to_one_socket
    on_heddle do |task|
      near, far = TCPServer.open("127.0.0.1", 0) do |server|
        [TCPSocket.new(*server.addr.values_at(3, 1)), server.accept]
      end
      reader = Thread.new { far.read.unpack("N*") }
      number = 0
      write = -> { near.write([number += 1].pack("N")) }
      peer = task.async { 200.times { near.readpartial(1) && work && write.call } }
      others = Array.new(20) { task.async { 50.times { work && write.call && sleep(0) } } }
      200.times { far.write("x") && sleep(0) }
      [peer, *others].each(&:wait)
      near.close
      assert_equal 0, reader.value.each_cons(2).count { |one, other| other != one + 1 }
    ensure
      [near, far].each(&:close)
    end
  end

  def test_a_trap_handler_writes_meanwhile
    each_loop do |task|
      (ROUNDS / 10).times do
        near = nil
        old = trap(:USR1) { near.write("!") }
        read = answer(task) { |socket, _| (near = socket) && Process.kill(:USR1, Process.pid) && sleep(0.0001) }.last
        assert_equal "answer!", read
      ensure
        trap(:USR1, old)
      end
    end
  end

  def test_a_child_of_fork_sends_nothing
    on_heddle do |task|
      (ROUNDS / 10).times do
        read = answer(task) { |near, _text| Process.wait(fork { exit!(near.close || 0) }) }
        assert_equal [6, "answer"], read
      end
    end
  end

  def test_a_task_of_heddles_sends_at_once
    events = []
    Heddle.run do
      near, far = UNIXSocket.pair
      writer = Heddle.spawn do
        near.readpartial(1)
        Heddle.spawn { sleep(0) && events << :worked }
        work && near.write("answer") && events << :wrote
      end
      far.write("?")
      writer.value
    ensure
      [near, far].each(&:close)
    end
    assert_equal :wrote, events.first
  end

  private

  def each_loop(&block) = %i[own top run].each { |loop| AsyncLoops.run(loop, &block) }

  def on_heddle(&block) = %i[top run].each { |loop| AsyncLoops.run(loop, &block) }

  # A task reads a request, works and answers, while the block's task is ready. Returns what its write returned, nil if
  # an exception ended it, and what the peer has read in the end. The block gets the socket, the String and the task.
  def answer(task, work: WORK, then_do: nil, around: ->(_, &write) { write.call })
    near, far = UNIXSocket.pair
    text = +"answer"
    result = nil
    other = nil
    writer = task.async do |itself|
      near.readpartial(1)
      other = task.async do |another|
        another.yield
        yield(near, text, writer)
      end
      work(work)
      around.call(itself) { result = near.write(text) }
      then_do&.call
    end
    far.write("?")
    writer.wait
    other.wait
    near.close
    [result, far.read]
  ensure
    [near, far].each(&:close)
  end

  def work(seconds = WORK)
    stop = monotonic + seconds
    true until monotonic > stop
    true
  end
end

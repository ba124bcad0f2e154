# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"

runs_on rubies: :ends

# Hazards around a stream: two users at once, forks, garbage collection, memory, threads that compute.
class StreamHazardsTest < Minitest::Test
  include StreamHelpers

  def test_two_readers_at_once_are_refused_but_a_reader_and_a_writer_are_not
    with_stream do |stream, peer|
      first = Thread.new { stream.gets }
      wait_until { stream.statistics[:waits] == 1 }
      error = assert_raises(Heddle::StreamBusy) { stream.gets }
      assert_kind_of Heddle::Error, error
      stream.write("to the peer\n")
      stream.flush
      assert_equal "to the peer\n", peer.gets
      peer.write("answer\n")
      assert_equal "answer\n", first.value
      assert_predicate stream, :healthy?
    end
  end

  def test_a_forked_child_neither_sends_its_parents_bytes_nor_ends_the_connection
    with_stream do |stream, peer|
      stream.write("the parent's\n")
      stream.expect
      reader, writer = IO.pipe
      pid = fork do
        error = assert_raises(StandardError) { stream.write("x") }
        writer.write(Marshal.dump([stream.healthy?, error.class.name, stream.closed?]))
        writer.close
        exit!(0)
      end
      writer.close
      assert_equal [false, "Heddle::StreamClosed", true], Marshal.load(reader.read)
      Process.wait(pid)
      stream.flush
      assert_equal "the parent's\n", peer.gets
      peer.write("ok\n")
      assert_equal "ok\n", stream.gets
      stream.replied
      assert_predicate stream, :healthy?
    end
  end

  def test_a_stream_at_rest_may_be_handed_to_a_child
    with_stream do |stream, peer|
      pid = fork do
        stream.write("from the child\n")
        stream.close
        exit!(0)
      end
      Process.wait(pid)
      assert_equal "from the child\n", peer.gets
      stream.write("from the parent\n")
      stream.flush
      assert_equal "from the parent\n", peer.gets
    end
  end

  # The first call of a client on a stream that it was handed need not be a flush.
  def test_a_child_may_begin_with_a_piggybacked_message
    with_stream do |stream, peer|
      pid = fork do
        stream.queue_no_reply("riding,")
        stream.write("from the child\n")
        stream.flush
        exit!(stream.healthy? ? 0 : 1)
      end
      assert_equal "riding,from the child\n", peer.gets
      assert_predicate Process.wait2(pid).last, :success?
    end
  end

  def test_a_string_that_is_changed_or_frozen_while_it_is_read_into
    {RuntimeError => ->(buffer) { buffer.replace("") },
     FrozenError => ->(buffer) { buffer.freeze }}.each do |error, change|
      with_stream do |stream, peer|
        buffer = +""
        reading = Thread.new { stream.read(1_000_000, buffer) }
        reading.report_on_exception = false
        peer.write("x" * 100_000)
        wait_until { stream.statistics[:bytes_received] == 100_000 && reading.stop? }
        change.call(buffer)
        peer.write("x")
        assert_raises(error) { reading.value }
        assert_predicate stream, :closed?, "the bytes that it read are lost"
      end
    end
  end

  def test_a_separator_that_is_changed_while_a_line_is_waited_for
    with_stream do |stream, peer|
      separator = "-" * 1000
      reading = Thread.new { stream.gets(separator) }
      wait_until { reading.stop? && stream.statistics[:waits] > 0 }
      separator.replace("")
      GC.start
      peer.write("a line#{"-" * 1000}rest")
      assert_equal "a line#{"-" * 1000}", reading.value
    end
  end

  # At the limit, one below and one above it, with the end of the line in the same packet and in the next.
  def test_the_longest_line_that_is_allowed
    [1, 100, 20_000, 70_000].each do |limit|
      [[limit, true], [limit + 1, false]].each do |length, allowed|
        line = "#{"x" * (length - 1)}\n"
        [[line], [line[0..-2], "\n"]].each do |pieces|
          with_stream(timeout: stretched(10)) do |stream, peer|
            sending = Thread.new do
              pieces.each do |piece|
                peer.write(piece)
                # Only after this one was checked comes the next.
                wait_until { stream.closed? || stream.statistics[:bytes_received] >= piece.bytesize }
              end
            end
            if allowed
              assert_equal line, stream.gets(limit: limit)
              assert_equal 0, stream.buffered
            else
              assert_raises(Heddle::BufferLimitExceeded) { stream.gets(limit: limit) }
            end
            sending.join
          end
        end
      end
    end
  end

  def test_objects_move_while_it_waits
    skip "this Ruby does not move objects" unless GC.respond_to?(:compact)

    with_stream(timeout: stretched(10)) do |stream, peer|
      reading = Thread.new { [stream.gets, stream.read(30_000), stream.read_into(+"", 30_000)] }
      wait_until { reading.stop? && stream.statistics[:waits] > 0 }
      GC.compact
      peer.write("line\n#{"x" * 10_000}")
      wait_until { reading.stop? && stream.statistics[:bytes_received] > 10_000 }
      GC.compact
      peer.write("x" * 30_000)
      wait_until { reading.stop? && stream.statistics[:bytes_received] > 40_000 }
      GC.compact
      peer.write("x" * 20_000)
      assert_equal ["line\n", "x" * 30_000, "x" * 30_000], reading.value
    end
  end

  def test_the_queue_of_piggybacked_messages_is_bounded_in_bytes_and_number
    with_stream(timeout: stretched(10), buffer_limit: 1 << 20) do |stream, peer|
      100.times { stream.queue_no_reply("x" * 600) }
      assert_equal 0, stream.statistics[:sends]
      20.times { stream.queue_no_reply("x" * 600) }
      assert_equal 1, stream.statistics[:sends]
      assert_equal 110 * 600, peer.read(110 * 600).bytesize
      stream.write("a message that has begun")
      error = assert_raises(Heddle::BufferLimitExceeded) { 2000.times { stream.queue_no_reply("x" * 600) } }
      assert_kind_of IOError, error
    end
  end

  # A wait during which a signal handler ran is the same wait, with the same limit; the handler may use another
  # stream.
  def test_signals_in_the_middle_of_a_wait
    %i[thread fiber].each do |wait|
      handled = []
      with_stream(timeout: stretched(10)) do |other, other_peer|
        before = trap(:USR1) do
          other.write("h")
          other.flush
          handled << other.getbyte
        end
        begin
          in_mode(wait) do
            with_stream(read_timeout: 10) do |stream, peer|
              signalling = Thread.new do
                3.times do |i|
                  other_peer.write("!")
                  Process.kill(:USR1, Process.pid)
                  wait_until { handled.size > i }
                end
                peer.write("line\n")
              end
              assert_equal "line\n", stream.gets
              signalling.join
              assert_predicate stream, :healthy?
            end
          end
        ensure
          trap(:USR1, before)
        end
        assert_equal [33] * 3, handled
        assert_equal "hhh", other_peer.read(3)
      end
    end
  end

  def test_an_interrupt_that_a_mask_holds_up_until_a_wait
    with_stream do |stream, _peer|
      mask = {IOError => :on_blocking}
      waiting = Thread.new do
        Thread.handle_interrupt(mask) { Thread.current.raise(IOError, "held up") && stream.gets }
      rescue IOError => error
        error.message
      end
      assert_equal "held up", waiting.value
    end
  end

  def test_an_interrupt_passes_through_and_closes_the_stream
    %i[thread fiber].each do |wait|
      with_stream(timeout: stretched(10)) do |stream, _|
        asking = Thread.new do
          wait_until { stream.statistics[:waits] == 1 }
          Process.kill(:INT, Process.pid)
        end
        assert_raises(Interrupt) { in_mode(wait) { stream.gets } }
        asking.join
        assert_predicate stream, :closed?
      end
    end
  end

  def test_a_length_from_the_wire_takes_no_memory_that_has_not_arrived
    with_stream do |stream, peer|
      peer.write("x" * 1000)
      before = rss_kib
      reading = Thread.new { stream.read_into(+"", 4 << 30) }
      reading.report_on_exception = false
      wait_until { stream.statistics[:bytes_received] == 1000 && reading.stop? }
      assert_operator rss_kib - before, :<, 100 << 10
      peer.close
      assert_raises(Heddle::UnexpectedEnd) { reading.value }
    end
  end

  # The sent bytes are half a message: what follows would be taken for its other half.
  def test_no_memory_in_the_middle_of_a_message
    skip "AddressSanitizer ends a process that has no memory" if ENV["ASAN_OPTIONS"]

    flooded = <<~RUBY
      require "etc"
      server = TCPServer.new("127.0.0.1", 0)
      pid = fork do
        peer = server.accept
        loop { peer.write("x" * 65536) }
      end
      stream = Heddle::Stream.connect("127.0.0.1", server.addr[1], timeout: 50, buffer_limit: 1 << 40)
      question = "q" * 30_000_000
      taken = File.read("/proc/self/statm").to_i * Etc.sysconf(Etc::SC_PAGESIZE)
      Process.setrlimit(:AS, taken + (100 << 20))
      raised = begin
        stream.write(question)
      rescue NoMemoryError => error
        error.class
      end
      print [raised, stream.closed?, stream.capacity].inspect
      Process.kill(:KILL, pid)
      Process.wait(pid)
    RUBY
    assert_equal "[NoMemoryError, true, 0]", assert_child(flooded, timeout: 60)
  end

  def test_an_argument_that_cannot_be_written_takes_none_with_it
    with_stream do |stream, peer|
      bad = Object.new
      bad.define_singleton_method(:to_s) { raise "no" }
      assert_raises(RuntimeError) { stream.write("half ", bad) }
      refute_predicate stream, :closed?
      assert_equal 8, stream.write("a ", :whole, "\n")
      stream.flush
      assert_equal "a whole\n", peer.gets
      assert_equal 0, stream.write
    end
  end

  def test_buffers_shrink
    with_stream do |stream, peer|
      writer = Thread.new { peer.write("#{"x" * 5_000_000}\n") }
      assert_equal 5_000_001, stream.gets.bytesize
      assert_operator stream.capacity, :<=, 64 << 10
      writer.join
    end
  end

  # In a process with few objects, of which a collection finds the end soon.
  def test_under_the_stress_of_garbage_collection
    assert_equal "the same", assert_child(<<~'RUBY', timeout: 50)
      server = TCPServer.new("127.0.0.1", 0)
      Thread.new { server.accept.then { |peer| loop { peer.write(peer.readpartial(1000)) } } }
      stream = Heddle::Stream.connect("127.0.0.1", server.addr[1], timeout: 40)
      same = ->(wanted, got) { got == wanted or raise "#{got.inspect} instead of #{wanted.inspect}" }
      GC.stress = true
      5.times do |i|
        stream.write("line #{i}\n", "x" * 20)
        same.call("line #{i}\n", stream.gets)
        same.call("x" * 20, stream.read(20))
      end
      same.call(40_000, stream.write("y" * 40_000))
      same.call(40_000, stream.read_into(+"", 40_000).bytesize)
      print "the same"
    RUBY
  end

  def test_a_computing_thread_does_not_cost_each_request_a_time_slice
    busy = <<~RUBY
      server = TCPServer.new("127.0.0.1", 0)
      pid = fork do
        peer = server.accept
        peer.setsockopt(:TCP, :NODELAY, true)
        while (line = peer.gets) do peer.write(line) end
        exit!(0)
      end
      stream = Heddle::Stream.connect("127.0.0.1", server.addr[1], timeout: 50)
      ask = -> { stream.write("get\\n") && stream.gets }
      ask.call
      Heddle.spin_before_release = ARGV.empty?
      spinning = stop = false
      spinner = Thread.new { spinning = true; nil until stop }
      Thread.pass until spinning
      ask.call
      now = -> { Heddle::Clock.now }
      started = now.call
      count = 0
      looks = -> { stream.statistics[:looks] }
      (ask.call; count += 1) while (count <= 200 || looks.call.zero?) && now.call - started < 3
      stop = true
      print [count, looks.call].inspect
      stream.close
      Process.kill(:KILL, pid)
      Process.wait(pid)
    RUBY
    count, looks = eval(assert_child(busy, timeout: 50)) # standard:disable Security/Eval
    # Releasing the GVL each time allows ten a second. Beside other processes the computing thread may miss its turn for
    # 200 requests, so the requests go on until one had to look.
    assert_operator looks, :>, 0
    assert_operator count, :>, 200, "#{count} requests in 3 s beside a thread that computes"
    assert_equal true, Heddle.spin_before_release?
  end

  # One call whose every wait ends in a poll, during which an interrupt for this thread arrives. Packets let each
  # receive find less than it could take.
  def test_a_long_read_that_only_polls_can_be_interrupted
    assert_equal "in the middle", assert_child(<<~RUBY, timeout: 25)
      packets = 200
      stream, peer = Socket.pair(:UNIX, :SEQPACKET).map { |socket| Heddle::Stream.new(socket) }
      numbers = -> { [stream.statistics[:looks], Heddle.gvl_statistics[:releases]] }
      interrupted = nil
      trap(:USR1) { interrupted = numbers.call[0] }
      parent = Process.pid
      pid = fork { loop { sleep(0.03) && Process.kill(:USR1, parent) } }
      at_exit { Process.kill(:KILL, pid) && Process.wait(pid) }
      Thread.new { loop {} } # who has the lock regained late
      loop do
        packets.times { peer.write("packet") && peer.flush }
        before, interrupted = numbers.call, nil
        stream.skip(packets * 6)
        after = numbers.call
        # Where the lock was let go nothing needs a check of its own; nor between calls.
        next unless after == [before[0] + packets, before[1]]
        break if interrupted&.between?(before[0] + 1, after[0] - 1)
      end
      print "in the middle"
    RUBY
  end
end

# frozen_string_literal: true

require "support/stream_helpers"

# What a stream does, for each way to wait and each kind of connection. The including class defines `mode` and `tls?`.
module StreamBehaviour
  include StreamHelpers

  # `serve` gets the other end, in a thread; the block gets the stream, in the class's mode.
  def with_served_stream(serve, **options, &block)
    in_mode(self.class.wait_mode) { with_stream(tls: tls?, serve: serve, timeout: stretched(10), **options, &block) }
  end

  def saying(*pieces)
    lambda do |peer|
      pieces.each do |piece|
        peer.write(piece)
        peer.flush
      end
      peer.close
    end
  end

  def echo
    ->(peer) { loop { peer.write(peer.readpartial(65536)) } }
  end

  # The result of Ruby's own IO.
  def read_by_ruby(text)
    reader, writer = IO.pipe
    writer << text
    writer.close
    yield reader
  ensure
    reader.close
  end

  def test_lines_are_split_as_by_a_socket
    text = "one\ntwo\r\n\n\nthree\nlast"
    {
      [] => {}, [nil] => {}, [""] => {}, ["t"] => {}, ["o\n"] => {}, [3] => {}, ["\n", 2] => {}, [nil, 5] => {}
    }.each_key do |arguments|
      [false, true].each do |chomp|
        expected = read_by_ruby(text) { |io| io.each_line(*arguments, chomp: chomp).to_a }
        next if chomp && arguments != [] && arguments != ["t"] && arguments != ["o\n"] # Ruby's versions differ

        with_served_stream(saying(*text.each_char)) do |stream|
          assert_equal expected, stream.each_line(*arguments, chomp: chomp).to_a,
            "each_line(#{arguments.inspect}, chomp: #{chomp})"
          assert_nil stream.gets
          assert_predicate stream, :eof?
          assert_raises(EOFError) { stream.readline }
        end
      end
    end
  end

  def test_a_line_that_is_too_long
    with_served_stream(->(peer) { peer.write("x" * 5000) && sleep }) do |stream|
      error = assert_raises(Heddle::BufferLimitExceeded) { stream.gets(limit: 1000) }
      assert_includes error.message, "1000"
      assert_raises(Heddle::StreamClosed) { stream.gets }
    end
  end

  def test_exact_reads
    bytes = Random.bytes(300_000)
    with_served_stream(->(peer) { peer.write(bytes) && peer.close }) do |stream|
      assert_equal bytes[0, 10], stream.read(10)
      assert_equal bytes[10, 5], stream.peek(5)
      assert_equal bytes[10, 100_000], stream.read(100_000)
      into = +"what was there"
      assert_same into, stream.read_into(into, 50_000)
      assert_equal bytes[100_010, 50_000], into
      assert_equal Encoding::BINARY, into.encoding
      assert_same stream, stream.skip(70_000)
      assert_equal bytes[220_010].ord, stream.getbyte
      assert_equal "", stream.read(0)
      buffer = +""
      rest = stream.read(1_000_000, buffer)
      assert_same buffer, rest
      assert_equal bytes[220_011..], rest
      assert_nil stream.read(1)
      assert_nil stream.read(1, buffer)
      assert_equal "", stream.read
      assert_raises(EOFError) { stream.readpartial(1) }
    end
  end

  def test_reading_to_the_end
    bytes = Random.bytes(1_500_000)
    with_served_stream(->(peer) { peer.write(bytes) && peer.close }) { |stream| assert_equal bytes, stream.read }
  end

  def test_partial_reads
    with_served_stream(->(peer) { peer.write("abcdef") && peer.gets && peer.write("g") && peer.close }) do |stream|
      assert_equal "abc", stream.readpartial(3)
      assert_equal "def", stream.readpartial(100)
      buffer = +"as before"
      assert_equal :wait_readable, stream.read_nonblock(10, buffer, exception: false)
      assert_raises(IO::EAGAINWaitReadable) { stream.read_nonblock(10, buffer) }
      assert_equal "as before", buffer
      assert_nil stream.wait_readable(0.01)
      stream.write("go\n")
      assert_same stream, stream.wait_readable(10)
      assert_equal "g", stream.read_nonblock(10)
      assert_same stream, stream.wait_readable
      wait_until { stream.read_nonblock(10, exception: false) != :wait_readable }
      assert_nil stream.read_nonblock(10, buffer, exception: false)
      assert_equal "", buffer
      assert_raises(EOFError) { stream.read_nonblock(10) }
    end
  end

  def test_an_end_in_the_middle
    [->(stream) { stream.read_into(+"", 10) }, ->(stream) { stream.skip(10) }].each do |read|
      with_served_stream(saying("abc")) do |stream|
        assert_raises(Heddle::UnexpectedEnd) { read.call(stream) }
        assert_predicate stream, :closed?
      end
    end
    with_served_stream(saying("abc")) { |stream| assert_equal "abc", stream.read(10) }
    with_served_stream(saying("abc")) { |stream| assert_equal "abc", stream.peek(10) }
  end

  def test_writes_are_buffered_until_a_read_waits
    with_served_stream(echo) do |stream|
      assert_equal 3, stream.write("a", :b, 3)
      stream.print("d")
      stream.puts("e", ["f\n"])
      assert_same stream, (stream << "g\n")
      stream.printf("%03d", 7)
      stream.putc("\n")
      assert_equal 0, stream.statistics[:sends]
      assert_equal "ab3de\n", stream.gets
      assert_equal 1, stream.statistics[:sends]
      assert_equal "f\ng\n007\n", stream.read(8)
      assert_predicate stream, :healthy?
    end
  end

  def test_sync_sends_at_once
    with_served_stream(echo, sync: true) do |stream|
      assert stream.sync
      stream.write("a")
      stream.write("b")
      assert_equal 2, stream.statistics[:sends]
      assert_equal "ab", stream.read(2)
    end
  end

  def test_piggybacked_bytes_precede_the_next_message
    with_served_stream(echo) do |stream|
      stream.write("first,")
      stream.queue_no_reply("close,")
      stream.write("second;")
      assert_equal "first,second;", stream.read(13)
      assert_equal "", stream.wait_readable(0.05).to_s
      stream.write("third")
      assert_equal "close,third", stream.read(11)
      stream.queue_no_reply("x")
      stream.flush
      assert_equal "x", stream.read(1)
    end
  end

  def test_too_many_piggybacked_bytes_are_sent_at_once
    with_served_stream(echo) do |stream|
      129.times { stream.queue_no_reply("x") }
      assert_equal "x" * 129, stream.read(129)
      stream.queue_no_reply("y" * 65537)
      assert_equal 65537, stream.read(65537).bytesize
    end
  end

  # Both sides only write, more than the sockets between them hold.
  def test_ten_mebibytes_both_ways_at_once
    bytes = Random.bytes(10 << 20)
    both = lambda do |peer|
      peer.write(bytes)
      peer.flush
      got = +""
      got << peer.readpartial(1 << 20) while got.bytesize < bytes.bytesize
      peer.write((got == bytes) ? "same" : "different")
      sleep
    end
    with_served_stream(both, timeout: stretched(60)) do |stream|
      assert_within(60, remeasure: 0) do
        stream.write(bytes)
        stream.flush
      end
      # TLS delivers records of 16 KiB at a time: each is not worth a wait.
      assert_operator stream.statistics[:waits], :<, bytes.bytesize / (32 << 10) if tls?
      assert_equal bytes, stream.read(bytes.bytesize)
      assert_equal "same", stream.read(4)
      assert_operator stream.capacity, :<=, 128 << 10, "the buffers have not shrunk again"
    end
  end

  def test_pipelined_messages_do_not_wait_for_each_other
    reply = "r" * 1000
    server = ->(peer) { peer.write(reply) while peer.gets }
    with_served_stream(server) do |stream|
      20_000.times { |i| stream.write("request #{i} #{"x" * 300}\n") }
      stream.flush
      20_000.times { assert_equal reply, stream.read(1000) }
      assert_predicate stream, :healthy?
    end
  end

  def test_a_peer_that_only_sends_is_throttled
    flood = lambda do |peer|
      loop { peer.write("x" * 65536) }
    end
    with_served_stream(flood, buffer_limit: 1 << 20) do |stream|
      assert_raises(Heddle::BufferLimitExceeded) { loop { stream.write("y" * 65536) } }
      assert_predicate stream, :closed?
    end
  end

  def test_timeouts_bound_whole_operations
    drip = ->(peer) { loop { peer.write("x") && sleep(0.05) } }
    [->(s) { s.gets }, ->(s) { s.read(1000) }, ->(s) { s.read(100_000) }, ->(s) { s.read }, ->(s) { s.skip(1000) },
      ->(s) { s.peek(1000) }].each do |read|
      with_served_stream(drip, read_timeout: 0.2) do |stream|
        error = assert_within(2, at_least: 0.15) { assert_raises(Heddle::DeadlineExceeded) { read.call(stream) } }
        assert_includes error.message, "0.2 s"
        assert_raises(Heddle::StreamClosed) { stream.write("x") }
        refute_predicate stream, :healthy?
      end
    end
  end

  def test_a_deadline_around_an_operation_bounds_it_and_stays_passed
    if self.class.wait_mode == :async
      skip "Heddle.deadline in a task of another scheduler is raised in that scheduler's own loop"
    end

    with_served_stream(->(_) { sleep }) do |stream|
      assert_within(2, at_least: 0.1) do
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { stream.gets } }
      end
      assert_predicate stream, :closed?
    end
  end

  def test_writing_to_a_peer_that_does_not_read
    with_served_stream(->(_) { sleep }, write_timeout: 0.2) do |stream|
      assert_within(5) { assert_raises(Heddle::DeadlineExceeded) { loop { stream.write("x" * 100_000) } } }
      assert_predicate stream, :closed?
    end
  end

  def test_an_exchange_has_one_timeout_and_counts_replies
    drip = ->(peer) { loop { peer.write("x\n") && sleep(0.05) } }
    with_served_stream(drip) do |stream|
      assert_equal "x\n", stream.exchange { stream.gets }
      assert_equal 0, stream.owed
      assert_raises(Heddle::DeadlineExceeded) do
        stream.exchange(100, timeout: 0.2) { 100.times { stream.gets } }
      end
      assert_raises(Heddle::StreamClosed) { stream.gets }
    end
  end

  # What is announced inside stays announced after the exchange, whichever of its own replies the block counts off
  # itself.
  def test_replies_expected_inside_an_exchange_are_owed_after_it
    with_served_stream(->(peer) { peer.write("a\nb\nc\nd\n") && sleep }) do |stream|
      stream.exchange { stream.gets && stream.expect(2) }
      assert_equal 2, stream.owed
      refute_predicate stream, :healthy?
      stream.exchange { stream.exchange { stream.expect } }
      assert_equal 3, stream.owed
      stream.exchange(2) { 2.times { stream.gets && stream.replied } }
      assert_equal 3, stream.owed
      stream.exchange { stream.expect(2) && stream.replied(2) }
      assert_equal 3, stream.owed
      stream.gets
      stream.replied(3)
      assert_predicate stream, :healthy?
    end
  end

  def test_an_exchange_that_is_left_early_closes_the_stream
    [->(s) { s.exchange { raise "no" } }, ->(s) { catch(:out) { s.exchange { throw :out } } },
      ->(s) { s.exchange { break } }].each do |leave|
      with_served_stream(echo) do |stream|
        begin
          leave.call(stream)
        rescue RuntimeError
          nil
        end
        assert_predicate stream, :closed?
        assert_raises(Heddle::StreamClosed) { stream.write("x") }
      end
    end
  end

  def test_health
    with_served_stream(->(peer) { peer.gets && peer.write("unasked") && sleep }) do |stream|
      assert_predicate stream, :healthy?
      stream.expect
      refute_predicate stream, :healthy?
      assert_equal 0, stream.replied
      assert_predicate stream, :healthy?
      assert_raises(ArgumentError) { stream.replied }
      [-1, 1 << 31].each { |count| assert_raises(ArgumentError) { stream.expect(count) } }
      stream.write("speak\n")
      refute_predicate stream, :healthy?
      stream.flush
      wait_until { !stream.healthy? }
    end
    with_served_stream(->(peer) { peer.close }) { |stream| wait_until { !stream.healthy? } }
  end

  def test_close_sends_buffered_bytes
    got = nil
    reader = Thread.current
    with_served_stream(lambda { |peer|
      got = peer.read
      reader.wakeup if reader.stop?
    }) do |stream|
      stream.write("the last")
      stream.close
      stream.close
      assert_raises(IOError) { stream.write("x") }
      assert_raises(IOError) { stream.gets }
      wait_until { got }
    end
    assert_equal "the last", got
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"

runs_on rubies: :ends

# Of all limits of an operation the earliest counts, in whichever order they were set.
class StreamDeadlinesTest < Minitest::Test
  include StreamHelpers

  EARLY = 0.15
  LATE = 30

  def silent = ->(_) { sleep }

  def ended_early(stream)
    error = assert_within(2, at_least: EARLY * 0.8) { assert_raises(Heddle::DeadlineExceeded) { yield stream } }
    assert_predicate stream, :closed?
    error
  end

  # Each row has the early limit in one place, and the late one in the others.
  %i[timeout exchange deadline outer_deadline outer_exchange].each do |place|
    %i[thread fiber].each do |wait|
      define_method(:"test_#{place}_is_the_earliest_in_a_#{wait}") do
        time = Hash.new(LATE).merge(place => EARLY)
        in_mode(wait) do
          with_stream(serve: silent, read_timeout: time[:timeout]) do |stream|
            ended_early(stream) do
              Heddle.deadline(time[:outer_deadline]) do
                stream.exchange(timeout: time[:outer_exchange]) do
                  Heddle.deadline(time[:deadline]) { stream.exchange(timeout: time[:exchange]) { stream.gets } }
                end
              end
            end
          end
        end
      end
    end
  end

  def test_an_exchange_bounds_waits_that_have_no_timeout
    [->(s) { s.wait_readable }, ->(s) { s.wait_readable(LATE) }, ->(s) { s.wait }].each do |look|
      %i[thread fiber].each do |wait|
        in_mode(wait) do
          with_stream(serve: silent) do |stream|
            ended_early(stream) { stream.exchange(timeout: EARLY) { look.call(stream) } }
          end
        end
      end
    end
  end

  # Clients that wait for the socket themselves, as Net::HTTP does, call the stream now and then.
  def test_an_exchange_bounds_loops_of_calls_that_do_not_wait
    with_stream(serve: silent) do |stream|
      ended_early(stream) { stream.exchange(timeout: EARLY) { loop { stream.read_nonblock(10, exception: false) } } }
    end
    with_stream(serve: silent) do |stream|
      ended_early(stream) do
        stream.exchange(timeout: EARLY) { loop { stream.write_nonblock("x" * 10_000, exception: false) } }
      end
    end
  end

  # An operation that never has to wait checks the clock all the same.
  def test_a_flooding_peer_does_not_extend_the_time
    flood = ->(peer) { loop { peer.write("x" * (1 << 20)) } }
    [->(s) { s.read }, ->(s) { s.skip(1 << 50) }].each do |read|
      %i[thread fiber].each do |wait|
        in_mode(wait) do
          with_stream(serve: flood, read_timeout: EARLY) { |stream| ended_early(stream, &read) }
        end
      end
    end
  end

  # Not even for bytes that have arrived: a peer that always sends more would extend the time without end.
  def test_an_exchange_out_of_time_does_not_wait
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_stream do |stream, peer|
          peer.write("late\n")
          assert_raises(Heddle::DeadlineExceeded) do
            stream.exchange(timeout: 0.01) do
              sleep 0.02
              IO.select([stream])
              stream.gets
            end
          end
          assert_predicate stream, :closed?
        end
      end
    end
  end

  def test_a_handshake_takes_no_longer_than_a_read
    with_stream(serve: silent, read_timeout: EARLY) do |stream|
      ended_early(stream) { stream.start_tls("localhost", {verify: false}) }
    end
  end

  def test_each_timeout_defaults_to_the_common_one
    listener = TCPServer.new("127.0.0.1", 0)
    {
      {timeout: 7} => [7, 7], {timeout: 7, read_timeout: 3} => [3, 7], {timeout: 7, write_timeout: 3} => [7, 3],
      {timeout: 7, read_timeout: nil} => [nil, 7], {} => [nil, nil]
    }.each do |options, expected|
      stream = Heddle::Stream.connect("127.0.0.1", listener.addr[1], **options)
      assert_equal expected, [stream.read_timeout, stream.write_timeout], options.inspect
      stream.close
      socket = TCPSocket.new("127.0.0.1", listener.addr[1])
      stream = Heddle::Stream.new(socket, **options)
      assert_equal expected, [stream.read_timeout, stream.write_timeout], options.inspect
      stream.timeout = 1.5
      assert_equal [1.5, 1.5], [stream.read_timeout, stream.write_timeout]
      stream.close
    end
  ensure
    listener&.close
  end

  # No more bytes will come, so nothing waits: a client that keeps asking would never notice that its time is over.
  def test_a_client_that_keeps_reading_at_the_end
    reads = [->(s) { s.read(1) }, ->(s) { s.gets }, ->(s) { s.recv(1) }, ->(s) { s.eof? }, ->(s) { s.read(100_000) }]
    reads.each do |read|
      %i[thread fiber].each do |wait|
        in_mode(wait) do
          with_stream(serve: ->(peer) { peer.close }) do |stream|
            ended_early(stream) { stream.exchange(timeout: EARLY) { loop { read.call(stream) } } }
          end
          with_stream(serve: ->(peer) { peer.close }) do |stream|
            ended_early(stream) { Heddle.deadline(EARLY) { loop { read.call(stream) } } }
          end
        end
      end
    end
  end

  def test_a_timeout_of_zero
    with_stream(read_timeout: 0) do |stream, peer|
      peer.write("a\n")
      wait_until { stream.wait_readable(0) }
      assert_equal "a\n", stream.gets
      assert_raises(Heddle::DeadlineExceeded) { stream.gets }
    end
  end
end

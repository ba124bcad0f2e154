# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"

runs_on rubies: :ends, short: false

# An exchange is broken at every byte of its reply, in every way. The result is the right answer or an error, in time,
# and a closed stream: never a hang, never bytes of another answer.
class StreamPoisonTest < Minitest::Test
  include StreamHelpers

  hard_deadline 120

  REPLY = "LINE 12\r\nabcdefghijkl\r\nEND\r\n"
  TIME = 0.04

  # What the server does after so many bytes.
  BY_SERVER = {
    stall: ->(_) { sleep },
    close: ->(peer) { peer.close },
    reset: lambda do |peer|
      socket = peer.to_io
      socket.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
      socket.close
    end
  }.freeze

  class Interruption < StandardError; end

  def setup
    @sent = Queue.new
    @plan = Queue.new
  end

  def serve(peer)
    offset, ending = @plan.pop
    peer.gets
    peer.write(REPLY[0, offset])
    peer.flush
    @sent << offset
    # A drip continues to the end, but too slowly.
    REPLY[offset..].each_char { |byte| sleep(TIME / 2) && peer.write(byte) && peer.flush } if ending == :drip
    BY_SERVER.fetch(ending, BY_SERVER[:stall]).call(peer)
  end

  def ask(stream, timeout: nil)
    stream.exchange(timeout: timeout) do
      stream.write("ask\r\n")
      line = stream.gets(limit: 100)
      raise EOFError, "no line" unless line&.end_with?("\n")

      body = stream.read_into(+"", Integer(line[/\d+/]) + 2)
      rest = stream.gets(limit: 100)
      raise EOFError, "no end" unless rest&.end_with?("\n")

      line + body + rest
    end
  end

  def outcome
    yield
  rescue Heddle::DeadlineExceeded, Heddle::TaskCancelled, Interruption, IOError, SystemCallError,
    OpenSSL::SSL::SSLError => error
    error
  end

  # `client` asks in one of the ways and `interrupt` is called when so many bytes have arrived. Returns the outcome.
  def break_at(offset, ending, tls, timeout: nil)
    @plan << [offset, ending]
    with_stream(tls: tls, serve: method(:serve)) do |stream|
      started = monotonic
      result = yield stream
      took = monotonic - started
      assert_operator took, :<, stretched(3), "#{ending} at #{offset} took #{took} s"
      whole = offset == REPLY.bytesize
      case result
      when REPLY then assert whole || ending == :drip, "an answer although #{ending} came at #{offset}"
      when Exception
        assert_predicate stream, :closed?, "#{ending} at #{offset} (#{result.inspect}) left the stream open"
        refute_predicate stream, :healthy?
        assert_raises(IOError) { ask(stream) }
      else flunk "#{ending} at #{offset}: #{result.inspect}"
      end
      result
    end
  end

  def at_every_offset(&block)
    (0..REPLY.bytesize).each(&block)
  end

  # Calls the block once the stream has received so many bytes, from its own thread.
  def when_arrived(stream, offset)
    Thread.new do
      @sent.pop
      wait_until { stream.statistics[:bytes_received] >= offset }
      yield
    end.tap { |thread| thread.report_on_exception = false }
  end

  [false, true].each do |tls|
    suffix = tls ? "_in_tls" : ""

    %i[stall close reset drip].each do |ending|
      %i[thread fiber].each do |wait|
        define_method(:"test_#{ending}_by_the_server_in_a_#{wait}#{suffix}") do
          at_every_offset do |offset|
            result = in_mode(wait) { break_at(offset, ending, tls) { |stream| outcome { ask(stream, timeout: TIME) } } }
            assert_kind_of Heddle::DeadlineExceeded, result if ending == :stall && offset < REPLY.bytesize
          end
        end
      end
    end

    %i[thread fiber].each do |wait|
      define_method(:"test_a_deadline_in_a_#{wait}#{suffix}") do
        at_every_offset do |offset|
          in_mode(wait) { break_at(offset, :stall, tls) { |stream| outcome { Heddle.deadline(TIME) { ask(stream) } } } }
        end
      end

      define_method(:"test_close_by_another_thread_in_a_#{wait}#{suffix}") do
        at_every_offset do |offset|
          in_mode(wait) do
            break_at(offset, :stall, tls) do |stream|
              closer = when_arrived(stream, offset) { stream.close }
              result = outcome { ask(stream) }
              wait_until { !closer.alive? }
              assert_nil closer.value
              result
            end
          end
        end
      end
    end

    define_method(:"test_raise_and_kill#{suffix}") do
      at_every_offset do |offset|
        break_at(offset, :stall, tls) do |stream|
          asking = Thread.new { outcome { ask(stream) } }
          when_arrived(stream, offset) { asking.raise(Interruption, "now") }
          asking.value
        end
        break_at(offset, :stall, tls) do |stream|
          asking = Thread.new { outcome { ask(stream) } }
          when_arrived(stream, offset) { asking.kill }
          asking.join(stretched(10))
          asking.value || (assert_predicate(stream, :closed?) && Interruption.new)
        end
      end
    end

    define_method(:"test_cancel_in_a_task#{suffix}") do
      at_every_offset do |offset|
        Heddle.run do
          break_at(offset, :stall, tls) do |stream|
            asking = Heddle.spawn { outcome { ask(stream) } }
            wait_until { @sent.size > 0 }
            @sent.clear
            wait_until { asking.ended? || stream.statistics[:bytes_received] >= offset }
            asking.cancel
            outcome { asking.value }
          end
        end
      end
    end
  end
end

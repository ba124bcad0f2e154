# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "socket"

# IO#timeout= (Ruby 3.2 and later) holds in tasks as it does without a scheduler. Ruby asks the scheduler for a wait
# without a limit, and leaves it to the hook to look at the timeout.
class IOTimeoutTest < Minitest::Test
  include LoopHelpers

  def setup
    skip "IO#timeout came with Ruby 3.2" unless IO.method_defined?(:timeout)
  end

  READS = {gets: [], getc: [], read: [10], readpartial: [10], recv: [10], recvfrom: [10]}.freeze

  READS.each do |name, arguments|
    define_method("test_#{name}") do
      UNIXSocket.pair do |reader, writer|
        reader.timeout = 0.05
        assert_times_out { reader.public_send(name, *arguments) }
        answer = Heddle.run do
          asked = Heddle.spawn { reader.public_send(name, *arguments) }
          writer.write("ten bytes\n")
          asked.value
        end
        assert_includes Array(answer), (name == :getc) ? "t" : "ten bytes\n", "the next read works as before"
      end
    end
  end

  def test_write
    UNIXSocket.pair do |_, writer|
      writer.timeout = 0.05
      assert_times_out { loop { writer.write("x" * 100_000) } }
    end
  end

  def test_accept
    TCPServer.open("127.0.0.1", 0) do |server|
      server.timeout = 0.05
      assert_times_out { server.accept }
    end
  end

  # From Ruby 4.1 on it is one attempt, which does not wait.
  def test_a_read_into_a_buffer
    skip "this Ruby's IO::Buffer does not wait" if IO::Buffer.const_defined?(:VERSION) && IO::Buffer::VERSION >= 3
    UNIXSocket.pair do |reader, _|
      reader.timeout = 0.05
      buffer = quietly { IO::Buffer.new(10) }
      assert_times_out { buffer.read(reader, 5) }
    end
  end

  # Before Ruby 3.4 a hook cannot tell the program's own wait from one of Ruby's reads, which has to raise.
  def test_a_wait
    UNIXSocket.pair do |reader, _|
      reader.timeout = 0.05
      next assert_times_out { reader.wait_readable } unless ruby_at_least?("3.4")

      assert_within(0.55, at_least: 0.05) { assert_nil(Heddle.run { reader.wait_readable }) }
    end
  end

  # A wait's own limit takes precedence.
  def test_a_timeout_given_in_the_call
    UNIXSocket.pair do |reader, _|
      reader.timeout = 60
      assert_within(0.55, at_least: 0.05) { assert_nil(Heddle.run { reader.wait_readable(0.05) }) }
    end
  end

  private

  # Ruby warns that IO::Buffer is experimental.
  def quietly
    before, Warning[:experimental] = Warning[:experimental], false
    yield
  ensure
    Warning[:experimental] = before
  end

  def assert_times_out(&block)
    assert_within(0.55, at_least: 0.05) { Heddle.run { assert_raises(IO::TimeoutError, &block) } }
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"

runs_on rubies: :ends

# The cost of a request: three system calls, including its deadline.
class StreamSystemCallsTest < Minitest::Test
  include StreamHelpers

  def echo_lines
    lambda do |peer|
      while (line = peer.gets)
        peer.write(line)
      end
    end
  end

  def test_a_request_and_its_reply_are_send_poll_receive
    with_stream(serve: echo_lines, timeout: stretched(5)) do |stream|
      ask = -> { stream.exchange(timeout: 1) { stream.write("get it\r\n") && stream.gets } }
      ask.call
      before = stream.statistics
      100.times { Heddle.deadline(5) { assert_equal "get it\r\n", ask.call } }
      used = stream.statistics.to_h { |name, number| [name, number - before[name]] }
      assert_equal [100, 100], used.values_at(:sends, :receives)
      # A poll keeps the GVL where another thread has made regaining it slow: one poll more.
      assert_equal 300, used[:system_calls] - used[:looks]
      assert_operator used[:looks], :<=, 20
    end
  end

  def test_a_pipeline_of_a_hundred_requests_is_as_cheap_as_one_request
    serve = ->(peer) { peer.read(800) && peer.write("ok\r\n" * 100) && sleep }
    with_stream(serve: serve, timeout: stretched(5)) do |stream|
      100.times { stream.write("request\n") }
      100.times { assert_equal "ok\r\n", stream.gets }
      assert_equal 3, stream.statistics[:system_calls]
    end
  end

  # As the kernel saw it.
  def test_strace_counts_the_same
    skip "strace is a program of Linux" unless linux?
    trace = Tempfile.new("strace")
    launcher = ["strace", "-f", "-qq", "-e", "trace=network,poll,ppoll,read,write", "-o", trace.path]
    outcome = in_child(<<~RUBY, launcher: launcher)
      server = TCPServer.new("127.0.0.1", 0)
      pid = fork do
        peer = server.accept
        while (line = peer.gets) do peer.write(line) end
        exit!(0)
      end
      stream = Heddle::Stream.connect("127.0.0.1", server.addr[1], timeout: 5)
      stream.write("warm up\\n")
      stream.gets
      GC.disable
      File.open("/proc/self/comm", "w") { |file| file.write("measured") }
      50.times { stream.write("get\\n") && stream.gets }
      $stdout.syswrite(Process.pid.to_s)
      stream.close
      Process.kill(:KILL, pid)
      Process.wait(pid)
    RUBY
    skip "strace may not trace here: #{outcome.err.lines.first}" if outcome.err.include?("PTRACE")

    assert_predicate outcome.status, :success?, outcome.err
    own = File.readlines(trace.path).grep(/\A#{outcome.out}\s/)
    start = own.rindex { |line| line.include?("measured") }
    calls = own[start + 1..].take_while { |line| !line.include?("write(1, ") }
      .reject { |line| line.include?("resumed>") }
    assert_operator calls.grep(/sendto|sendmsg|recvfrom|recvmsg|poll/).size, :>=, 150
    assert_operator calls.size, :<=, 160, calls.first(12).join
  end
end

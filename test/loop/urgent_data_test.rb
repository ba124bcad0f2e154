# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "io/wait"

# The third list of IO.select, and IO#wait_priority: a task sees what a plain thread sees, to which a hang-up or an
# error is no urgent data.
class UrgentDataTest < Minitest::Test
  include LoopHelpers

  # Each makes an IO and others that are to stay open.
  STATES = {
    idle: -> { tcp },
    data: -> { tcp.tap { |_, theirs| theirs.write("x") } },
    urgent: -> { tcp.tap { |_, theirs| theirs.sendmsg("urgent", Socket::MSG_OOB) } },
    urgent_behind_data: lambda do
      tcp.tap do |_, theirs|
        theirs.write("y")
        theirs.sendmsg("urgent", Socket::MSG_OOB)
      end
    end,
    half_closed: -> { tcp.tap { |_, theirs| theirs.close_write } },
    closed: lambda do
      tcp.tap do |ours, theirs|
        ours.close_write
        theirs.close
      end
    end,
    reset: lambda do
      tcp.tap do |_, theirs|
        theirs.setsockopt(Socket::Option.linger(true, 0))
        theirs.close
      end
    end,
    unix_closed: -> { UNIXSocket.pair.tap { |_, theirs| theirs.close } },
    pipe_closed: -> { IO.pipe.tap { |_, writer| writer.close } },
    unconnected: -> { [Socket.new(:INET, :STREAM)] }
  }.freeze
  CALLS = {
    third_list: ->(io) { IO.select(nil, nil, [io], 0.02) },
    third_list_now: ->(io) { IO.select(nil, nil, [io], 0) },
    first_and_third: ->(io) { IO.select([io], nil, [io], 0.02) },
    wait_priority: ->(io) { io.wait_priority(0.02) },
    wait_priority_now: ->(io) { io.wait_priority(0) }
  }.freeze

  STATES.each do |state, make|
    CALLS.each do |name, call|
      define_method("test_#{name}_#{state}") do
        plain = outcome(make, call)
        assert_equal plain, Heddle.run { outcome(make, call) }
      end
    end
  end

  # A peer that has hung up must not make the select spin.
  def test_a_hang_up_beside_others
    with_pair do |reader, writer|
      gone, = UNIXSocket.pair.tap { |_, theirs| theirs.close }
      Heddle.run do
        selector = Heddle.spawn { IO.select([reader], nil, [gone, reader], 30) }
        sleep(0.001)
        before = Heddle.stats[:switches]
        3.times { sleep(0.001) }
        assert_operator Heddle.stats[:switches] - before, :<, 20
        writer.write("x")
        assert_equal [[reader], [], []], selector.value
      end
      gone.close
    end
  end

  private

  def tcp
    server = TCPServer.new("127.0.0.1", 0)
    ours = TCPSocket.new("127.0.0.1", server.addr[1])
    [ours, server.accept, server]
  end

  def outcome(make, call)
    ios = instance_exec(&make)
    comes = !%i[idle unconnected].include?(STATES.key(make))
    wait_until { ios[0].wait(IO::READABLE | IO::PRIORITY, 0.005) } if comes
    call.call(ios[0]).inspect.gsub(ios[0].inspect, "io")
  ensure
    ios&.each(&:close)
  end
end

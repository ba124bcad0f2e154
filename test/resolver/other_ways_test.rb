# frozen_string_literal: true

require "test_helper"
require "json"
require "support/loop_helpers"
require "support/dead_network"

# Every other way in which Ruby looks up a name: which of them let the other tasks run while a name server is slow,
# and which do not. When this changes, doc/limits.md has to change.
class OtherWaysTest < Minitest::Test
  include LoopHelpers
  include DeadNetworkHelpers

  ZONE = {
    "late.test" => {"a" => ["127.0.0.1"], "delay" => 0.4},
    "two.test" => {"a" => %w[192.0.2.1 192.0.2.2]},
    "192.0.2.9" => {"ptr" => "nine.test", "delay" => 0.4}
  }.freeze

  FREE = {
    "Addrinfo.tcp and connect" => "Addrinfo.tcp('late.test', PORT).connect.close",
    "Addrinfo.getaddrinfo" => "Addrinfo.getaddrinfo('late.test', 'http', nil, :STREAM)",
    "Socket#connect" => "Socket.new(:INET, :STREAM).connect(Socket.sockaddr_in(PORT, 'late.test'))",
    "UDPSocket#connect" => "UDPSocket.new.connect('late.test', PORT)",
    "UDPSocket#send" => "UDPSocket.new.send('x', 0, 'late.test', PORT)",
    "IPSocket.getaddress" => "IPSocket.getaddress('late.test')",
    "TCPServer.new" => "TCPServer.new('late.test', 0).close",
    "a subclass" => "Class.new(TCPSocket).new('late.test', PORT).close",
    "a local host" => "TCPSocket.new('localhost', PORT, 'late.test', 0).close",
    "TCPSocket.gethostbyname" => ("TCPSocket.gethostbyname('late.test')" if TCPSocket.respond_to?(:gethostbyname))
  }.compact.freeze # Ruby 4.1 has no such methods

  def test_look_ups_that_let_other_tasks_run
    gaps = gaps_of(FREE)
    again = gaps.select { |_, gap| gap > 0.2 } # the machine may have been busy
    gaps.update(gaps_of(FREE.slice(*again.keys))) if again.any?
    gaps.each { |name, gap| assert_operator gap, :<, stretched(0.2), name }
  end

  def test_look_ups_that_stop_other_tasks
    stopping = {}
    if Socket.respond_to?(:gethostbyaddr)
      stopping["Socket.gethostbyaddr"] = "Socket.gethostbyaddr([192, 0, 2, 9].pack('C4'))"
    end
    if ruby_at_least?("3.4")
      stopping["an initialize of its own"] = <<~RUBY
        Class.new(TCPSocket) { def initialize(host, port) = super }.new('late.test', PORT).close
      RUBY
    end
    gaps_of(stopping).each { |name, gap| assert_operator gap, :>, 0.35, "#{name} is no limit any more" }
  end

  def test_a_scope_that_addrinfo_does_not_take
    assert_equal "fe80::1%lo", Addrinfo.tcp("fe80::1%lo", 80).ip_address
    Heddle.run { assert_raises(SocketError) { Addrinfo.tcp("fe80::1%lo", 80) } }
  end

  def test_look_ups_in_plain_threads_outlive_a_deadline
    network = dead_network(zone: ZONE)
    out = assert_child(<<~RUBY, launcher: network.launcher)
      began = Heddle::Clock.now
      begin
        Heddle.deadline(0.1) { Addrinfo.getaddrinfo("late.test", 80) }
      rescue Heddle::DeadlineExceeded
        puts Heddle::Clock.now - began
      end
    RUBY
    # Ruby 3.3 and later look up in a thread that can be abandoned.
    assert_operator out.to_f, ruby_at_least?("3.3") ? :< : :>, 0.35, "doc/limits.md says otherwise"
  end

  private

  # The longest time that another task had to wait beside each, in seconds.
  def gaps_of(ways)
    network = dead_network(zone: ZONE)
    out = assert_child(<<~RUBY, launcher: network.launcher)
      require "json"
      SERVER = TCPServer.new("127.0.0.1", 0)
      PORT = SERVER.addr[1]
      def now = Heddle::Clock.now

      def gap_of(code)
        longest = 0.0
        asking = Heddle.spawn { sleep(0.005) && eval(code) }
        until asking.ended?
          last = now
          sleep 0.001
          longest = [longest, now - last].max
        end
        asking.value
        longest
      end
      $VERBOSE = nil
      Heddle.run { puts JSON.generate(#{ways.inspect}.transform_values { |code| gap_of(code) }) }
    RUBY
    JSON.parse(out)
  end
end

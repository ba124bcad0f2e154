# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "io/wait"
require "socket"

runs_on backends: :one

# Methods that take the name of a host or of a service: in a task each answers as beside it, where the method is Ruby's
# own.
class LookUpsTest < Minitest::Test
  include LoopHelpers

  LOOK_UPS = {
    "sockaddr_in smtp" => -> { Socket.sockaddr_in("smtp", "::1").bytesize },
    "sockaddr_in bad service" => -> { Socket.sockaddr_in("no-such-service", "127.0.0.1").bytesize },
    "sockaddr_in nil host" => -> { Socket.unpack_sockaddr_in(Socket.sockaddr_in("smtp", nil)) },
    "sockaddr_in empty host" => -> { Socket.unpack_sockaddr_in(Socket.sockaddr_in(25, "")) },
    "sockaddr_in broadcast" => -> { Socket.unpack_sockaddr_in(Socket.sockaddr_in(25, "<broadcast>")) },
    "sockaddr_in any" => -> { Socket.unpack_sockaddr_in(Socket.sockaddr_in(25, "<any>")) },
    "gai canon" =>
      -> { Addrinfo.getaddrinfo("localhost", 80, nil, :STREAM, nil, Socket::AI_CANONNAME).map(&:canonname) },
    "gai canon ip" =>
      -> { Addrinfo.getaddrinfo("127.0.0.1", 80, nil, :STREAM, nil, Socket::AI_CANONNAME).map(&:canonname) },
    "gai service" => -> { Addrinfo.getaddrinfo("127.0.0.1", "smtp", nil, :STREAM).map(&:ip_port) },
    "gai service udp" => -> { Addrinfo.getaddrinfo("127.0.0.1", "domain", nil, :DGRAM).map(&:ip_port) },
    "gai bad service" => -> { Addrinfo.getaddrinfo("127.0.0.1", "no-such-service", nil, :STREAM).map(&:ip_port) },
    "gai unknown" => -> { Addrinfo.getaddrinfo("no-such-name.invalid", 80, nil, :STREAM) },
    "gai unknown label" => -> { Addrinfo.getaddrinfo("a" * 300, 80, nil, :STREAM) },
    "gai empty" => -> { Addrinfo.getaddrinfo("", 80, nil, :STREAM).map(&:ip_address) },
    "gai nil" => -> { Addrinfo.getaddrinfo(nil, 80, nil, :STREAM).map(&:ip_address) },
    "gai passive" => -> { Addrinfo.getaddrinfo(nil, 80, nil, :STREAM, nil, Socket::AI_PASSIVE).map(&:ip_address) },
    "gai nil nil" => -> { Addrinfo.getaddrinfo(nil, nil, nil, :STREAM) },
    "gai numerichost bad" => -> { Addrinfo.getaddrinfo("localhost", 80, nil, :STREAM, nil, Socket::AI_NUMERICHOST) },
    "gai numericserv bad" =>
      -> { Addrinfo.getaddrinfo("127.0.0.1", "smtp", nil, :STREAM, nil, Socket::AI_NUMERICSERV) },
    "gai bad family" => -> { Addrinfo.getaddrinfo("127.0.0.1", 80, :INET6, :STREAM) },
    "gai v6 on v4" => -> { Addrinfo.getaddrinfo("::1", 80, :INET, :STREAM) },
    "gai bad flags" => -> { Addrinfo.getaddrinfo("localhost", 80, nil, :STREAM, nil, 0x7fffffff) },
    "gai v4mapped" =>
      -> { Addrinfo.getaddrinfo("127.0.0.1", 80, :INET6, :STREAM, nil, Socket::AI_V4MAPPED).map(&:ip_address) },
    "gai addrconfig" =>
      -> { Addrinfo.getaddrinfo("localhost", 80, nil, :STREAM, nil, Socket::AI_ADDRCONFIG).map(&:ip_address).sort },
    "gai all socktypes" => -> { Addrinfo.getaddrinfo("127.0.0.1", 80).map { |a| [a.socktype, a.protocol] } },
    "gai port out" => -> { Addrinfo.getaddrinfo("127.0.0.1", 70000, nil, :STREAM).map(&:ip_port) },
    "gai port neg" => -> { Addrinfo.getaddrinfo("127.0.0.1", -1, nil, :STREAM).map(&:ip_port) },
    "gai port str" => -> { Addrinfo.getaddrinfo("127.0.0.1", "70000", nil, :STREAM).map(&:ip_port) },
    "gai hex" => -> { Addrinfo.getaddrinfo("0x7f.1", 80, nil, :STREAM).map(&:ip_address) },
    "gai int host" => -> { Addrinfo.getaddrinfo(2130706433, 80, nil, :STREAM).map(&:ip_address) },
    "gai sym" => -> { Addrinfo.getaddrinfo("localhost", 80, :INET, :STREAM).map(&:inspect) },
    "gai null" => -> { Addrinfo.getaddrinfo("local\0host", 80, nil, :STREAM) },
    "gai scope" => -> { Addrinfo.getaddrinfo("fe80::1%lo", 80, nil, :STREAM).map(&:ip_address) },
    "gai bad scope" => -> { Addrinfo.getaddrinfo("fe80::1%nope", 80, nil, :STREAM).map(&:ip_address) },
    "gai idn" => -> { Addrinfo.getaddrinfo("b\u00fccher.invalid", 80, nil, :STREAM) },
    "addrinfo.tcp svc" => -> { Addrinfo.tcp("127.0.0.1", "smtp").inspect },
    "addrinfo.tcp name" => -> { Addrinfo.tcp("localhost", "http").inspect_sockaddr },
    "addrinfo.udp svc" => -> { Addrinfo.udp("127.0.0.1", "domain").inspect },
    "addrinfo.ip" => -> { Addrinfo.ip("localhost").ip_address },
    "addrinfo.ip bad" => -> { Addrinfo.ip("no-such-name.invalid") },
    "addrinfo.new" => -> { Addrinfo.new(["AF_INET", 80, "localhost", "127.0.0.1"]).inspect },
    "addrinfo.new name" => -> { Addrinfo.new(["AF_INET", "http", "localhost", "127.0.0.1"], nil, :STREAM).inspect },
    "addrinfo.new badport" =>
      -> { Addrinfo.new(["AF_INET", "no-such-service", "localhost", "127.0.0.1"], nil, :STREAM).inspect },
    "family_addrinfo" => -> { Addrinfo.tcp("127.0.0.1", 0).family_addrinfo("localhost", "http").inspect },
    "foreach" => -> { Addrinfo.foreach("127.0.0.1", "http").map(&:ip_port).uniq },
    "Socket.gai" => -> { Socket.getaddrinfo("127.0.0.1", "http", nil, :STREAM) },
    "Socket.gai bad" => -> { Socket.getaddrinfo("no-such-name.invalid", 80) },
    "Socket.gai rev" => -> { Socket.getaddrinfo("127.0.0.1", 80, nil, :STREAM, nil, nil, true)[0][2].class },
    "gni" => -> { Socket.getnameinfo(Socket.sockaddr_in(25, "127.0.0.1")) },
    "gni num" => -> { Socket.getnameinfo(["AF_INET", 25, "127.0.0.1"], 3) },
    "gni name" => -> { Socket.getnameinfo(["AF_INET", "smtp", "127.0.0.1"], 3) },
    "gni host" => -> { Socket.getnameinfo(["AF_INET", 25, "localhost"], 3) },
    "gni 4" => -> { Socket.getnameinfo(["AF_INET", 25, "x.invalid", "127.0.0.1"], 3) },
    "gni nil" => -> { Socket.getnameinfo(["AF_INET", nil, "127.0.0.1"], 3) },
    "gni bad size" => -> { Socket.getnameinfo(["AF_INET", 25], 3) },
    "gni bad size5" => -> { Socket.getnameinfo(["AF_INET", 25, "a", "b", "c"], 3) },
    "gni empty" => -> { Socket.getnameinfo([], 3) },
    "gni bad fam" => -> { Socket.getnameinfo(["AF_NOPE", 25, "127.0.0.1"], 3) },
    "gni bad host" => -> { Socket.getnameinfo(["AF_INET", 25, "no-such-name.invalid"], 3) },
    "gni int fam" => -> { Socket.getnameinfo([2, 25, "127.0.0.1"], 3) },
    "gni sym" => -> { Socket.getnameinfo([:INET, 25, "127.0.0.1"], 3) },
    "gni string" => -> { Socket.getnameinfo("garbage") },
    "gni short" => -> { Socket.getnameinfo("\x02\x00") },
    "gni empty string" => -> { Socket.getnameinfo("") },
    "gni integer" => -> { Socket.getnameinfo(5) },
    "gni nilarg" => -> { Socket.getnameinfo(nil) },
    "gni namereqd" => -> { Socket.getnameinfo(["AF_INET", 25, "203.0.113.7"], Socket::NI_NAMEREQD) },
    "gni flags" => -> { Socket.getnameinfo(["AF_INET", 25, "127.0.0.1"], -1) },
    "gni dgram" => -> { Socket.getnameinfo(["AF_INET", 512, "127.0.0.1"], Socket::NI_DGRAM | Socket::NI_NUMERICHOST) },
    "ai gni" => -> { Addrinfo.tcp("127.0.0.1", 25).getnameinfo },
    "ai gni unix" => -> { Addrinfo.unix("/tmp/x").getnameinfo },
    "ai gni flags" => -> { Addrinfo.tcp("203.0.113.7", 25).getnameinfo(Socket::NI_NAMEREQD) },
    "getservbyname" => -> { Socket.getservbyname("smtp") },
    "getservbyname bad" => -> { Socket.getservbyname("no-such-service") },
    "getservbyport" => -> { Socket.getservbyport(25) },
    "gethostbyname" => -> { Socket.public_send(:gethostbyname, "localhost").then { |a| [a[0], a[2]] } },
    "gethostbyname bad" => -> { Socket.public_send(:gethostbyname, "no-such-name.invalid") },
    "TCPSocket.gethostbyname" => -> { TCPSocket.gethostbyname("localhost").then { |a| [a[0], a[2]] } },
    "TCPSocket.gethostbyname bad" => -> { TCPSocket.gethostbyname("no-such-name.invalid") },
    "gethostbyaddr" => -> { Socket.public_send(:gethostbyaddr, [127, 0, 0, 1].pack("CCCC")).first },
    "IPSocket.getaddress" => -> { IPSocket.getaddress("localhost") },
    "IPSocket.getaddress bad" => -> { IPSocket.getaddress("no-such-name.invalid") },
    "IPSocket.getaddress empty" => -> { IPSocket.getaddress("") },
    "TCPServer svc" => -> { TCPServer.new("127.0.0.1", "no-such-service") },
    "TCPServer host" => -> { TCPServer.new("no-such-name.invalid", 0) },
    "TCPServer localhost" => -> { TCPServer.new("localhost", "0").close },
    "TCPSocket svc bad" => -> { TCPSocket.new("127.0.0.1", "no-such-service") },
    "TCPSocket bad" => -> { TCPSocket.new("no-such-name.invalid", 80) },
    "TCPSocket local bad" => -> { TCPSocket.new("127.0.0.1", 1, "no-such-name.invalid", 0) },
    "TCPSocket tcpmux" => -> { TCPSocket.new("127.0.0.1", "tcpmux") },
    "UDP connect svc" => -> { UDPSocket.new.tap { |udp| udp.connect("127.0.0.1", "domain") }.peeraddr(false)[1] },
    "UDP connect bad" => -> { UDPSocket.new.connect("no-such-name.invalid", 1) },
    "UDP bind bad" => -> { UDPSocket.new.bind("127.0.0.1", "no-such-service") },
    "UDP send svc" => -> { UDPSocket.new.send(:x, 0, "127.0.0.1", "discard") },
    "UDP send bad" => -> { UDPSocket.new.send(:x, 0, "no-such-name.invalid", 9) },
    "Socket.tcp bad" => -> { Socket.tcp("no-such-name.invalid", 80) },
    "Socket.udp_server_sockets" => -> { Socket.udp_server_sockets("127.0.0.1", 0) { |s| break s.size } },
    "Socket.tcp_server_sockets bad" => -> { Socket.tcp_server_sockets("no-such-name.invalid", 0) },
    "connect sockaddr" => -> { Socket.new(:INET, :STREAM).connect(Socket.sockaddr_in("tcpmux", "localhost")) },
    "unpack bad" => -> { Socket.unpack_sockaddr_in("garbage") }
  }.freeze

  WAITS = {
    "select -5" => -> { IO.select([], [], [], -5) },
    "select str" => -> { IO.select([], [], [], "x") },
    "select nan" => -> { IO.select([], [], [], Float::NAN) },
    "select neg float" => -> { IO.select(nil, nil, nil, -0.1) },
    "select not array" => -> { IO.select(5) },
    "select bad io" => -> { IO.select([5]) },
    "select nil io" => -> { IO.select([nil], nil, nil, 0) },
    "kselect -5" => -> { select([], [], [], -5) },
    "sleep -1" => -> { sleep(-1) },
    "wait_readable -1" => -> { IO.pipe.then { |r, w| r.wait_readable(-1) } },
    "wait_readable str" => -> { IO.pipe.then { |r, w| r.wait_readable("x") } }
  }.freeze

  LOOK_UPS.merge(WAITS).each do |name, call|
    define_method("test_#{name.gsub(/\W+/, "_")}_as_beside_a_task") do
      own = outcome(call)
      assert_equal own, Heddle.run { outcome(call) }
      assert_equal own, Heddle.deadline(60) { outcome(call) }
    end
  end

  def test_other_tasks_run_meanwhile
    Heddle.run do
      turns = 0
      other = Heddle.spawn { loop { sleep(0) && turns += 1 } }
      before = turns
      assert_equal [25], Addrinfo.getaddrinfo("localhost", "smtp", nil, :STREAM).map(&:ip_port).uniq
      assert_operator turns, :>, before
      other.cancel
    end
  end

  def test_without_the_patch_ruby_takes_a_service_for_an_unknown_host
    out = in_child(<<~RUBY, env: {"HEDDLE_RUBY_FIXES" => "off"}).out
      Heddle.run { puts((Addrinfo.tcp("localhost", "http").ip_port rescue $!.message)) }
    RUBY
    refute_equal "80\n", out, "Ruby #{RUBY_VERSION} does not have the defect: the patch need not be loaded"
  end

  private

  # Ruby 3.4 and later call the look-up by two names, depending on the host; Socket.tcp's errors have no code there.
  def outcome(call)
    verbose, $VERBOSE = $VERBOSE, nil # some are deprecated
    call.call.inspect.gsub(/fd \d+/, "fd")
  rescue => error
    code = error.error_code if error.respond_to?(:error_code) && error.backtrace.none?(/[`.#]tcp'/)
    [error.class, error.message.sub("getaddrinfo(3)", "getaddrinfo"), code].inspect
  ensure
    $VERBOSE = verbose
  end
end

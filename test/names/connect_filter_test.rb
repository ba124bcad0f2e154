# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/dead_network"
require "support/hosts"
require "heddle/net_http"
require "timeout"

# Heddle.connect_filter: no way of connecting goes around the filters, what was checked is what is connected to, and a
# filter may do whatever other code may do.
class ConnectFilterTest < Minitest::Test
  include LoopHelpers
  include DeadNetworkHelpers

  PUBLIC = Heddle::ConnectFilter::PUBLIC
  Refused = Heddle::ConnectRefused

  # As wrappers of sockets have.
  class WithInitialize < TCPSocket
    def initialize(host, port) = super
  end

  # Ways to connect, with the host that the filter sees: the name, or only the address.
  WAYS = {
    "TCPSocket.new" => ->(host, port) { TCPSocket.new(host, port).close },
    "TCPSocket.open" => ->(host, port) { TCPSocket.open(host, port) { nil } },
    "a subclass" => ->(host, port) { WithInitialize.new(host, port).close },
    "Socket.tcp" => ->(host, port) { Socket.tcp(host, port) { nil } },
    "Socket.tcp in Ruby" => ->(host, port) { ConnectFilterTest.slowly { Socket.tcp(host, port).close } },
    "TCPSocket in Ruby" => ->(host, port) { ConnectFilterTest.slowly { TCPSocket.open(host, port).close } },
    "Net::HTTP" => ->(host, port) { Net::HTTP.new(host, port, nil).start { nil } },
    "Net::HTTP, stock" => ->(host, port) { ConnectFilterTest.stock { Net::HTTP.new(host, port, nil).start { nil } } },
    "Heddle::Stream" => ->(host, port) { Heddle::Stream.connect(host, port).close },
    "UDPSocket#connect" => ->(host, port) { UDPSocket.open { |socket| socket.connect(host, port) } }
  }.freeze
  WAYS_TO_ADDRESSES = {
    "Addrinfo" => ->(host, port) { Addrinfo.tcp(host, port).connect { nil } },
    "Socket#connect" => lambda do |host, port|
      Socket.open(:INET, :STREAM) { |socket| socket.connect(Socket.sockaddr_in(port, host)) }
    end,
    "Socket#connect_nonblock" => lambda do |host, port|
      Socket.open(:INET, :STREAM) { |socket| socket.connect_nonblock(Addrinfo.tcp(host, port), exception: false) }
    end
  }.freeze
  WAYS_TO_PATHS = {
    "UNIXSocket.new" => ->(path) { UNIXSocket.new(path).close },
    "UNIXSocket.open" => ->(path) { UNIXSocket.open(path) { nil } },
    "Socket.unix" => ->(path) { Socket.unix(path) { nil } },
    "Heddle::Stream" => ->(path) { Heddle::Stream.unix(path).close }
  }.freeze

  # Ruby's own connects, with its patches of Heddle switched off.
  def self.slowly
    Heddle.fast_fallback = false
    yield
  ensure
    Heddle.fast_fallback = true
  end

  def self.stock
    Heddle::NetHTTP.disable
    yield
  ensure
    Heddle::NetHTTP.enable
  end

  def teardown
    Heddle.connect_filter(nil)
  end

  # ---- every way asks

  def test_every_way_is_refused_and_asks_with_the_name
    accepted = Queue.new
    with_server(->(connection) { accepted << connection }) do |port|
      everywhere do |place|
        WAYS.merge(WAYS_TO_ADDRESSES).each do |name, way|
          asked = []
          refuse = ->(address, host) { asked.push([address.ip_address, address.ip_port, host]) && nil }
          error = assert_raises(Refused, "#{name} in #{place}") do
            Heddle.connect_filter(refuse) { way.call("localhost", port) }
          end
          host = WAYS.key?(name) ? "localhost" : "127.0.0.1"
          assert_includes [[["127.0.0.1", port, host]], [["127.0.0.1", port, host], ["::1", port, host]],
            [["::1", port, host], ["127.0.0.1", port, host]]], asked, "#{name} in #{place}"
          assert_equal [host, asked.first.first], [error.host, error.address.ip_address], name
          assert_match(/does not allow a connect to .*#{asked.first.first}/, error.message)
        end
      end
    end
    assert_empty accepted
  end

  def test_every_way_connects_when_allowed
    with_server(->(connection) { connection.read(1) }) do |port|
      everywhere do |place|
        WAYS.merge(WAYS_TO_ADDRESSES).each do |name, way|
          asked = 0
          Heddle.connect_filter(->(address, _) { (asked += 1) && address.ipv4? }) { way.call("localhost", port) }
          assert_includes 1..2, asked, "#{name} in #{place}"
        end
      end
    end
  end

  def test_unix_sockets_ask_with_their_path
    path = File.join(Dir.mktmpdir, "socket")
    server = UNIXServer.new(path)
    asked = []
    allow = false
    filter = ->(address, host) { asked.push([address.unix_path, host]) && allow }
    everywhere do |place|
      WAYS_TO_PATHS.each do |name, way|
        allow = false
        error = assert_raises(Refused, "#{name} in #{place}") { Heddle.connect_filter(filter) { way.call(path) } }
        assert_equal path, error.host
        assert_raises(IO::WaitReadable, name) { server.accept_nonblock }
        allow = true
        Heddle.connect_filter(filter) { way.call(path) }
        server.accept_nonblock.close
        assert_raises(Refused) { Heddle.connect_filter(PUBLIC) { way.call(path) } }
      end
    end
    assert_equal [[path, path]], asked.uniq
  ensure
    server&.close
    File.unlink(path)
    Dir.rmdir(File.dirname(path))
  end

  def test_clients_for_caches_and_databases
    with_server(->(connection) { connection.close }) do |port|
      everywhere do
        Heddle.connect_filter(PUBLIC) do
          %w[mysql postgresql].each do |kind|
            error = assert_raises(StandardError) { Heddle::DB.connect("#{kind}://me:secret@localhost:#{port}/base") }
            assert_kind_of Refused, causes(error).find { |cause| Refused === cause }, error.full_message
          end
          error = assert_raises(StandardError) { Heddle::Memcached.new("localhost:#{port}").get("key") }
          assert_kind_of Refused, causes(error).last, error.full_message
        end
      end
    end
  end

  # The gem async, or any other scheduler.
  def test_under_a_foreign_scheduler
    skip Hosts.missing(:async) if Hosts.missing(:async)

    with_server(->(connection) { connection.read(1) }) do |port|
      Hosts.run(:async) do |spawn|
        Heddle.connect_filter(PUBLIC) do
          WAYS.each do |name, way|
            assert_raises(Refused, name) { way.call("localhost", port) }
            spawn.call { assert_raises(Refused, name) { way.call("localhost", port) } }.value
          end
        end
        WAYS.each_value { |way| way.call("localhost", port) }
      end
    end
  end

  # resolv-replace and socksify replace TCPSocket#initialize, and keep Ruby's own under another name.
  def test_libraries_that_replaced_initialize
    replace = <<~RUBY
      class TCPSocket
        alias_method :kept_by_a_library, :initialize
        def initialize(host, port) = kept_by_a_library($moved || host, port)
      end
    RUBY
    [nil, "yes"].each do |first|
      out = assert_child(<<~RUBY, heddle: false, env: {"FIRST" => first})
        if ENV["FIRST"]
          eval(#{replace.dump})
          require "heddle"
        else
          require "heddle"
          eval(#{replace.dump})
        end
        server = TCPServer.new("127.0.0.1", 0)
        port = server.addr[1]
        TCPSocket.new("127.0.0.1", port).close
        asked = []
        Heddle.connect_filter { |address, host| asked << address.ip_address; address.ip_address != "127.0.0.1" }
        $moved = "127.0.0.1"
        [-> { TCPSocket.new("127.0.0.9", port) }, -> { Heddle.run { TCPSocket.open("127.0.0.9", port) } }].each do |way|
          way.call
          puts "went around"
        rescue Heddle::ConnectRefused
          puts "refused"
        end
        p asked.last
      RUBY
      assert_equal "refused\nrefused\n\"127.0.0.1\"\n", out
    end
  end

  def test_without_the_patches_of_ruby
    out = assert_child(<<~RUBY, env: {"HEDDLE_COMPAT" => "off"})
      server = TCPServer.new("127.0.0.1", 0)
      port = server.addr[1]
      Heddle.connect_filter(Heddle::ConnectFilter::PUBLIC)
      [-> { TCPSocket.new("localhost", port) }, -> { Socket.tcp("localhost", port) }].each do |way|
        2.times do |n|
          n.zero? ? way.call : Heddle.run(&way)
          puts "went around"
        rescue Heddle::ConnectRefused
          puts "refused"
        end
      end
    RUBY
    assert_equal "refused\n" * 4, out
  end

  # ---- what was checked is what is connected to

  # The filter changes what the name means before it allows the address.
  def test_a_name_that_means_another_address_after_the_check
    out = between(<<~RUBY, hosts: {"127.0.0.7" => ["rebound"]})
      asked = []
      Heddle.connect_filter do |address, host|
        asked << [address.ip_address, host]
        File.write("/etc/hosts", "127.0.0.1 rebound\\n")
        address.ip_address == "127.0.0.7"
      end
      ways.each do |name, way|
        File.write("/etc/hosts", "127.0.0.7 rebound\\n")
        puts name if way.call("rebound") != "127.0.0.7"
        puts name if asked != [["127.0.0.7", "rebound"]]
        asked.clear
      end
    RUBY
    assert_empty out
  end

  def test_a_refused_address_is_skipped
    out = between(<<~RUBY, hosts: {"127.0.0.7" => ["two"], "127.0.0.8" => ["two"]})
      ways.each do |name, way|
        %w[127.0.0.7 127.0.0.8].each do |allowed|
          connected = Heddle.connect_filter(->(address, _) { address.ip_address == allowed }) { way.call("two") }
          puts name if connected != allowed
        end
        asked = []
        Heddle.connect_filter(->(address, _) { asked.push(address.ip_address) && false }) { way.call("two") }
        puts "went around: " + name
      rescue Heddle::ConnectRefused => error
        puts name if asked.sort != %w[127.0.0.7 127.0.0.8] || error.address.ip_address != asked.first
      end
    RUBY
    assert_empty out
  end

  # The error of an address that was tried says more than the refusal of another.
  def test_an_allowed_address_that_does_not_answer
    out = between(<<~RUBY, hosts: {"127.0.0.7" => ["two"], "127.0.0.8" => ["two"]})
      servers.each(&:close)
      ways.each do |name, way|
        Heddle.connect_filter(->(address, _) { address.ip_address == "127.0.0.8" }) { way.call("two") }
        puts "went around: " + name
      rescue Errno::ECONNREFUSED
        nil
      end
    RUBY
    assert_empty out
  end

  # A String that other code changes while the filter waits.
  def test_a_host_that_changes_during_the_check
    with_server(->(connection) { connection.read }) do |port|
      everywhere do |place|
        WAYS.each do |name, way|
          next if /Net::HTTP/.match?(name) # copies the host

          host = +"127.0.0.1"
          filter = lambda do |address, seen|
            host.replace("127.0.0.9.example" * 9)
            address.ip_address == "127.0.0.1" && seen == "127.0.0.1"
          end
          Heddle.connect_filter(filter) { way.call(host, port) }
          assert_operator host.size, :>, 99, "#{name} in #{place}"
        end
        packed = Socket.sockaddr_in(port, "127.0.0.1")
        Socket.open(:INET, :STREAM) do |socket|
          change = ->(*) { packed.replace(Socket.sockaddr_in(port, "127.0.0.9")) }
          Heddle.connect_filter(change) { socket.connect(packed) }
          assert_equal "127.0.0.1", socket.remote_address.ip_address
        end
      end
    end
  end

  # What getaddrinfo makes of a host is what is checked.
  def test_odd_notations
    hosts = %w[127.1 0x7f.1 0x7f000001 2130706433 017700000001 0 0.0.0.0 ::1 :: ::ffff:127.0.0.1 ::ffff:7f00:1
      ::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: fe80::1%lo 0:0:0:0:0:0:0:1] + [nil, "", "<any>", "<broadcast>"]
    with_server(->(connection) { connection.close }) do |port|
      everywhere do |place|
        Heddle.connect_filter(PUBLIC) do
          hosts.product(WAYS.except("Heddle::Stream", "Net::HTTP", "Net::HTTP, stock").to_a) do |host, (name, way)|
            way.call(host, port)
            flunk "#{name} went to #{host.inspect} in #{place}"
          rescue Refused
            nil
          rescue SocketError, SystemCallError => error # not an address here, or not for this kind of socket
            next if name.start_with?("UDP") && host.to_s.include?(":")

            assert_includes [nil, "fe80::1%lo", "", "<any>", "<broadcast>"], host, error.full_message
          end
        end
      end
    end
  end

  # ---- which filters bind

  def test_nested_filters_must_all_allow
    with_server(->(connection) { connection.read(1) }) do |port|
      connect = -> { outcome(port) }
      allow, refuse = ->(*) { true }, ->(*) { false }
      everywhere do
        [[allow, allow, true], [allow, refuse, Refused], [refuse, allow, Refused]].each do |outer, inner, expected|
          assert_equal expected, Heddle.connect_filter(outer) { Heddle.connect_filter(inner, &connect) }
          Heddle.connect_filter(outer)
          assert_equal expected, Heddle.connect_filter(inner, &connect)
          Heddle.connect_filter(nil)
          assert_equal true, connect.call
        end
      end
    end
  end

  def test_tasks_inherit_and_other_tasks_are_free
    with_server(->(connection) { connection.read(1) }) do |port|
      connect = -> { outcome(port) }
      scheduled = nil
      Heddle.run do
        free = Heddle.spawn { [sleep(0.01), connect.call].last }
        bound = Heddle.connect_filter(PUBLIC) do
          [Heddle.spawn { [sleep(0.02), Heddle.spawn(&connect).value].last }, Heddle.spawn { Heddle.offload(&connect) },
            Heddle.spawn { Heddle.run(&connect) }, Heddle.spawn { Enumerator.new { |y| y << connect.call }.next },
            Heddle.spawn { Fiber.new(blocking: false, &connect).resume }]
        end
        assert_equal [Refused] * 5, bound.map(&:value)
        assert_equal [true, true], [free.value, connect.call]
        assert_equal [Refused], Heddle.connect_filter(PUBLIC) { Heddle::FiberPool.new(2).map([1]) { connect.call } }
      end
      Heddle.connect_filter(PUBLIC) do
        assert_equal Refused, Heddle.run(&connect)
        assert_equal [Refused], Heddle::FiberPool.new(2).map([1]) { connect.call }
        assert_equal [Refused] * 3, Heddle.map([1, 2, 3], processes: 2) { connect.call }
        assert_equal true, Thread.new(&connect).value # as with deadlines
        Heddle.run { Fiber.schedule { scheduled = connect.call } }
        assert_equal true, scheduled
      end
      Heddle.connect_filter(PUBLIC)
      assert_equal Refused, Thread.new(&connect).value
      assert_equal [Refused], Heddle.map([1], processes: 1) { connect.call }
      Heddle.run { Fiber.schedule { scheduled = connect.call } }
      assert_equal Refused, scheduled
    end
  end

  # A fiber that yields inside of its filter's block takes the filter with it.
  def test_a_fiber_that_yields_inside_of_its_filter
    with_server(->(connection) { connection.read(1) }) do |port|
      connect = -> { outcome(port) }
      everywhere do
        inner = Fiber.new(blocking: false) { Heddle.connect_filter(PUBLIC) { Fiber.yield && connect.call } }
        inner.resume
        assert_equal true, connect.call
        assert_equal Refused, Heddle.connect_filter(PUBLIC, &connect)
        assert_equal Refused, inner.resume(true)
        assert_equal true, connect.call
      end
    end
  end

  def test_a_fork_keeps_its_filters
    with_server(->(connection) { connection.read(1) }) do |port|
      [-> { Heddle.connect_filter(PUBLIC) && yield_in_fork(port) },
        -> { Heddle.connect_filter(PUBLIC) { yield_in_fork(port) } },
        -> { Heddle.run { Heddle.connect_filter(PUBLIC) { yield_in_fork(port) } } }].each do |place|
        assert_equal "Heddle::ConnectRefused", place.call
        Heddle.connect_filter(nil)
      end
    end
  end

  def test_ractors
    out = assert_child(<<~RUBY, env: {"RUBYOPT" => "-W:no-experimental"})
      server = TCPServer.new("127.0.0.1", 0)
      socket = File.join("#{Dir.tmpdir}", "heddle-\#{Process.pid}")
      listening = UNIXServer.new(socket)
      value = ->(ractor) { ractor.respond_to?(:value) ? ractor.value : ractor.take }
      ways = lambda do
        value.call(Ractor.new(server.addr[1], socket) do |port, path|
          [-> { TCPSocket.new("localhost", port) }, -> { TCPSocket.open("127.0.0.1", port) },
            -> { Addrinfo.tcp("127.0.0.1", port).connect }, -> { UNIXSocket.new(path) },
            -> { UDPSocket.new.connect("127.0.0.1", port) }].map do |way|
            way.call && "connected"
          rescue Heddle::ConnectRefused => error
            error.message[/Ractor/] || "refused"
          end
        end)
      end
      p ways.call.uniq
      Heddle.connect_filter(Heddle::ConnectFilter::PUBLIC)
      p ways.call.uniq
      Heddle.connect_filter { true }
      p ways.call.uniq
      Heddle.connect_filter(Ractor.make_shareable(nil.instance_eval { ->(*) { true } }))
      p ways.call.uniq
      listening.close
      File.unlink(socket)
    RUBY
    assert_equal [["connected"], ["refused"], ["Ractor"], ["connected"]].map(&:inspect), out.lines(chomp: true)
  end

  # ---- what a filter may do

  def test_a_filter_that_raises
    with_server(->(connection) { connection.close }) do |port|
      everywhere do
        error = assert_raises(Refused) do
          Heddle.connect_filter(->(*) { raise KeyError, "no such host" }) { Net::HTTP.new("localhost", port).start }
        end
        assert_match(/KeyError: no such host/, error.message)
        assert_kind_of KeyError, causes(error)[1..].find { |cause| KeyError === cause }
        assert_raises(Net::ReadTimeout) do
          Heddle.connect_filter(->(*) { raise Net::ReadTimeout }) { TCPSocket.new("localhost", port) }
        end
        assert_raises(NotImplementedError) do
          Heddle.connect_filter(->(*) { raise NotImplementedError }) { TCPSocket.new("localhost", port) }
        end
        before = descriptor_count
        out = ->(*) { throw :out, 7 }
        assert_equal 7, catch(:out) { Heddle.connect_filter(out) { TCPSocket.new("localhost", port) } }
        assert_equal before, descriptor_count
      end
    end
  end

  def test_a_filter_that_waits_lets_other_tasks_run_and_is_bounded
    with_server(->(connection) { connection.read(1) }) do |port|
      turns = 0
      waits = ->(*) { sleep(0.05) && true }
      Heddle.run do
        other = Heddle.spawn { loop { (turns += 1) && sleep(0.005) } }
        Heddle.connect_filter(waits) { TCPSocket.new("localhost", port).close }
        assert_operator turns, :>, 1
        other.cancel
      end
      everywhere do
        WAYS.each_value do |way|
          forever = ->(*) { sleep }
          assert_within(1) do
            assert_raises(Heddle::DeadlineExceeded) do
              Heddle.deadline(0.02) { Heddle.connect_filter(forever) { way.call("localhost", port) } }
            end
          end
          assert_raises(Timeout::Error) do
            Timeout.timeout(0.02, Net::OpenTimeout) { Heddle.connect_filter(forever) { way.call("localhost", port) } }
          end
        end
        assert_raises(Net::OpenTimeout) do
          Heddle.connect_filter(->(*) { sleep }) { Net::HTTP.start("localhost", port, open_timeout: 0.02) }
        end
      end
      Heddle.run do
        struck = Heddle.spawn { Heddle.connect_filter(->(*) { sleep }) { TCPSocket.new("localhost", port) } }
        struck.cancel
        assert_raises(Heddle::TaskCancelled) { struck.value }
      end
    end
  end

  def test_a_filter_that_connects_does_not_ask_itself
    with_server(->(connection) { connection.read(1) }) do |port|
      everywhere do |place|
        calls = 0
        curious = lambda do |_, _|
          calls += 1
          TCPSocket.new("localhost", port).close
          Heddle.spawn { TCPSocket.new("localhost", port).close }.value if place == "a task"
          true
        end
        Heddle.connect_filter(PUBLIC) do
          assert_raises(Refused) { Heddle.connect_filter(curious) { TCPSocket.new("localhost", port) } }
        end
        Heddle.connect_filter(curious)
        TCPSocket.new("localhost", port).close
        assert_includes 2..4, calls # one for each address
        Heddle.connect_filter(nil)
      end
    end
  end

  # While the filter of one connect waits, another filter is set, or none.
  def test_filters_that_change_meanwhile
    with_server(->(connection) { connection.read(1) }) do |port|
      Heddle.run do
        Heddle.connect_filter { |*| Heddle.connect_filter(nil) || true }
        TCPSocket.new("localhost", port).close
        Heddle.connect_filter { |*| Heddle.connect_filter(PUBLIC) && false }
        assert_raises(Refused) { TCPSocket.new("localhost", port) }
        assert_same PUBLIC, Heddle.connect_filter
      end
    end
  end

  # Exceptions, cancels and switches at random: no descriptor is left, and no connect goes around.
  def test_many_tasks_at_random
    seed = Integer(ENV.fetch("SEED", rand(1 << 16)))
    random = Random.new(seed)
    rounds = ENV["HEDDLE_STRESS"] ? Float(ENV["HEDDLE_STRESS"]) : 0.5
    accepted = 0
    with_server(->(connection) { (accepted += 1) && connection.read }) do |port|
      before = descriptor_count
      allowed = 0
      filter = lambda do |_, _|
        case random.rand(7)
        when 0 then sleep(random.rand / 500)
        when 1 then raise "no"
        when 2 then TCPSocket.new("localhost", port).close
        when 3 then Heddle.run { 1 }
        when 4 then GC.start if random.rand(20).zero?
        end
        random.rand(2).zero?.tap { |answer| allowed += 1 if answer }
      end
      finished = monotonic + rounds
      while monotonic < finished
        Heddle.run do
          Heddle.connect_filter(filter) do
            tasks = Array.new(20) do
              Heddle.spawn do
                Heddle.deadline(random.rand / 20) { WAYS.values.sample(random: random).call("localhost", port) }
              rescue Refused, Heddle::DeadlineExceeded, Timeout::Error
                nil
              end
            end
            tasks.sample(3, random: random).each(&:cancel)
            tasks.each { |task| task.value rescue Heddle::TaskCancelled } # rubocop:disable Style/RescueModifier
          end
        end
      end
      GC.start
      assert_operator descriptor_count, :<=, before + 60, "seed #{seed}" # the server's
      assert_operator allowed, :>, 0
    end
  end

  # ---- programs

  def test_redirects_to_a_metadata_service
    require "open-uri"
    require "faraday"
    answer = "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data/\r\nContent-Length: 0\r\n" \
      "Connection: close\r\n\r\n"
    with_server(->(connection) { connection.readpartial(9999) && connection.write(answer) }) do |port|
      url = "http://127.0.0.1:#{port}/"
      everywhere do
        Heddle.connect_filter(->(address, host) { address.ip_port == port || PUBLIC.call(address, host) }) do
          error = assert_raises(Refused) { URI.parse(url).open }
          assert_equal "169.254.169.254", error.address.ip_address
          reply = Net::HTTP.get_response(URI(url))
          error = assert_raises(Refused) { Net::HTTP.get(URI(reply["Location"])) }
          assert_equal "169.254.169.254", error.host
          connection = Faraday.new
          reply = connection.get(url)
          error = assert_raises(Faraday::ConnectionFailed) { connection.get(reply.headers["location"]) }
          assert_kind_of Refused, error.wrapped_exception
        end
      end
    end
  end

  # The proxy's address is what is connected to, and its name is the host.
  def test_a_proxy_is_what_is_asked_for
    with_server(->(connection) { connection.readpartial(999) }) do |port|
      everywhere do
        asked = []
        Heddle.connect_filter(->(address, host) { asked.push([address.ip_port, host]) && false }) do
          http = Net::HTTP.new("public.example", 443, "localhost", port)
          http.use_ssl = true
          assert_raises(Refused) { http.start }
        end
        assert_equal [[port, "localhost"]], asked.uniq
      end
    end
  end

  # A connection that is kept for later sessions is asked for again. One that is refused stays for others.
  def test_kept_connections
    requests = 0
    answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    serve = lambda do |connection|
      while connection.gets("\r\n\r\n")
        requests += 1
        connection.write(answer)
      end
    end
    Heddle::NetHTTP.keep_alive
    with_server(serve) do |port|
      url = URI("http://127.0.0.1:#{port}/")
      reused = -> { Heddle::NetHTTP.stats[:reused] }
      everywhere do
        Net::HTTP.get(url)
        before = [requests, reused.call]
        asked = []
        refuse = ->(address, host) { asked.push([address.ip_address, address.ip_port, host]) && false }
        assert_raises(Refused) { Heddle.connect_filter(refuse) { Net::HTTP.get(url) } }
        assert_equal [["127.0.0.1", port, "127.0.0.1"]] * 2, asked # the kept one, and a new one
        assert_equal before, [requests, reused.call]
        assert_equal "ok", Heddle.connect_filter(->(*) { asked.clear && true }) { Net::HTTP.get(url) }
        assert_empty asked
        assert_raises(Heddle::DeadlineExceeded) do
          Heddle.deadline(0.02) { Heddle.connect_filter(->(*) { sleep }) { Net::HTTP.get(url) } }
        end
        assert_equal reused.call, before.last + 1
      end
    end
  ensure
    Heddle::NetHTTP.keep_alive(nil)
  end

  # ---- the method

  def test_arguments
    assert_nil Heddle.connect_filter
    filter = ->(*) { true }
    assert_same filter, Heddle.connect_filter(filter)
    assert_same filter, Heddle.connect_filter
    assert_nil Heddle.connect_filter(nil)
    assert_kind_of Proc, Heddle.connect_filter { true }
    assert_equal 5, Heddle.connect_filter(PUBLIC) { 5 }
    assert_raises(TypeError) { Heddle.connect_filter(7) }
    assert_raises(TypeError) { Heddle.connect_filter(nil) { 1 } }
    assert_raises(ArgumentError) { Heddle.connect_filter(PUBLIC, PUBLIC) }
    assert_raises(ArgumentError) { TCPSocket.new }
    assert_raises(ArgumentError) { Socket.open(:INET, :STREAM, &:connect) }
  end

  private

  # Runs the block in a plain thread, in a thread with a deadline, and in a task.
  def everywhere
    yield "a thread"
    Heddle.deadline(50) { yield "a thread with a deadline" }
    Heddle.run { yield "a task" }
  end

  # true, or the class of the error.
  def outcome(port)
    TCPSocket.new("localhost", port).close
    true
  rescue => error
    error.class
  end

  def causes(error)
    error ? [error, *causes(error.cause)] : []
  end

  def yield_in_fork(port)
    reader, writer = IO.pipe
    pid = fork do
      writer.write(begin
        TCPSocket.new("localhost", port) && "connected"
      rescue => error
        error.class.name
      end)
      writer.close
      exit!(0)
    end
    writer.close
    reader.read
  ensure
    reader&.close
    Process.wait(pid) if pid
  end

  # Runs a program in a network of its own, with a server on 127.0.0.1, 127.0.0.7 and 127.0.0.8, and +ways+ to ask such
  # a server for its address.
  def between(program, hosts:)
    network = dead_network(hosts: hosts)
    assert_child(<<~RUBY, launcher: network.launcher)
      servers = [TCPServer.new("127.0.0.1", 0)]
      port = servers.first.addr[1]
      servers += %w[127.0.0.7 127.0.0.8].map { |address| TCPServer.new(address, port) }
      servers.each do |server|
        Thread.new { loop { server.accept.tap { |client| client.write(server.addr[3]) }.close } rescue IOError }
      end
      slowly = lambda do |&block|
        Heddle.fast_fallback = false
        block.call
      ensure
        Heddle.fast_fallback = true
      end
      subclass = Class.new(TCPSocket) { def initialize(host, port) = super }
      plain = {
        "new" => ->(host) { TCPSocket.new(host, port).read },
        "open" => ->(host) { TCPSocket.open(host, port, &:read) },
        "tcp" => ->(host) { Socket.tcp(host, port, &:read) },
        "open in Ruby" => ->(host) { slowly.call { TCPSocket.open(host, port).read } },
        "tcp in Ruby" => ->(host) { slowly.call { Socket.tcp(host, port).read } },
        "subclass" => ->(host) { subclass.new(host, port).read },
        "stream" => ->(host) { Heddle::Stream.connect(host, port).read }
      }
      ways = plain.flat_map do |name, way|
        [["thread " + name, way], ["deadline " + name, ->(host) { Heddle.deadline(9) { way.call(host) } }],
          ["task " + name, ->(host) { Heddle.run { way.call(host) } }]]
      end
      #{program}
    RUBY
  end
end

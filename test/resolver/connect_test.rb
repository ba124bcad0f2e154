# frozen_string_literal: true

require "test_helper"
require "json"
require "support/loop_helpers"
require "support/dead_network"

# TCPSocket.new, TCPSocket.open and Socket.tcp with a name, in a task: their results are those of Ruby's own methods,
# and an early end leaves nothing open.
class ConnectTest < Minitest::Test
  include LoopHelpers
  include DeadNetworkHelpers

  WAYS = [TCPSocket.method(:new), TCPSocket.method(:open), Socket.method(:tcp)].freeze

  # A subclass, as wrappers have.
  class WithInitialize < TCPSocket
    attr_reader :name

    def initialize(host, port)
      @name = host
      super
    end
  end

  class Plain < TCPSocket
  end

  # ---- results

  def test_the_winner_is_connected_once
    accepted = Queue.new
    with_server(->(connection) { accepted << connection.readpartial(1) }) do |port|
      Heddle.run do
        WAYS.each { |way| way.call("localhost", port).tap { |socket| socket.write("x") }.close }
        Array.new(10) { Heddle.spawn { TCPSocket.new("localhost", port).tap { |socket| socket.write("x") }.close } }
          .each(&:value)
      end
      13.times { assert_equal "x", accepted.pop }
    end
    assert_empty accepted
  end

  def test_a_socket_has_the_same_state_as_rubys
    with_server(->(connection) { connection.read }) do |port|
      WAYS.each do |way|
        ours = Heddle.run { traits(way.call("localhost", port)) }
        assert_equal traits(way.call("localhost", port)), ours
      end
    end
  end

  def test_blocks
    with_server(->(connection) { connection.read }) do |port|
      Heddle.run do
        sockets = [TCPSocket.open("localhost", port) { |socket| socket },
          Socket.tcp("localhost", port) { |socket| socket }]
        assert_equal [true, true], sockets.map(&:closed?)
        assert_equal 7, TCPSocket.open("localhost", port) { |socket| socket.close || 7 }
        assert_raises(KeyError) { TCPSocket.open("localhost", port) { |socket| sockets << socket && raise(KeyError) } }
        assert sockets.last.closed?
      end
    end
  end

  # As IO.open: an IO that other code has closed by then is no error; any other error of the close is raised.
  def test_an_error_of_the_close_after_the_block
    with_server(->(connection) { connection.read }) do |port|
      ["closed stream", "no space"].each do |message|
        [TCPSocket.method(:open), Socket.method(:tcp)].each do |way|
          attempt = lambda do
            way.call("localhost", port) do |socket|
              socket.define_singleton_method(:closed?) { false }
              socket.define_singleton_method(:close) { super() || raise(IOError, message) }
              message
            end
          rescue IOError => error
            error.class
          end
          stock = (way.name == :tcp && message == "closed stream") ? message : attempt.call
          assert_equal stock, Heddle.run(&attempt)
        end
      end
    end
  end

  def test_a_local_address
    with_server(->(connection) { connection.read }) do |port|
      Heddle.run do
        WAYS.each do |way|
          socket = way.call("localhost", port, "127.0.0.5", 0)
          assert_equal "127.0.0.5", socket.local_address.ip_address
          socket.close
        end
      end
    end
  end

  def test_ports_by_name_and_number
    with_server(->(connection) { connection.read }) do |port|
      Heddle.run do
        TCPSocket.new("localhost", port.to_s).close
        WAYS.each { |way| assert_raises(Errno::ECONNREFUSED) { way.call("localhost", "tcpmux") } }
      end
    end
  end

  # The loopback device has no route for link-local addresses; the error shows that the scope is understood.
  def test_an_address_with_a_scope
    expected = assert_raises(SystemCallError) { TCPSocket.new("fe80::1%lo", 80) }
    Heddle.run do
      error = assert_raises(expected.class) { TCPSocket.new("fe80::1%lo", 80) }
      assert_equal expected.message, error.message
      assert_raises(SocketError) { TCPSocket.new("fe80::1%nosuch", 80) }
    end
  end

  # ---- errors

  # With the message of the running Ruby.
  def test_errors_are_rubys_own
    # Bound, and not listening: no other program gets the port, and a connection to the port does not connect to
    # itself.
    nobody = Socket.new(:INET, :STREAM).tap { |socket| socket.bind(Addrinfo.tcp("127.0.0.1", 0)) }
    free = nobody.local_address.ip_port
    taken = TCPServer.new("127.0.0.1", 0)
    [
      ->(way) { way.call("localhost", free) },
      ->(way) { way.call("localhost", "no-such-service") },
      ->(way) { way.call("localhost", -1) },
      ->(way) { way.call("localhost", free, unknown: 1) },
      ->(way) { way.call("localhost") },
      ->(way) { way.call("a\0b", free) }
    ].each do |attempt|
      WAYS.each { |way| assert_same_error { attempt.call(way) } }
    end
    WAYS.first(2).each { |way| assert_same_error { way.call("localhost", free, "127.0.0.1", taken.addr[1]) } }
  ensure
    [nobody, taken].each { |socket| socket&.close }
  end

  def test_an_unknown_name
    zone = {"nothing.test" => {}, "failing.test" => {"failure" => "servfail"}}
    %w[nobody.test nothing.test failing.test].each do |name|
      program = <<~RUBY
        [TCPSocket.method(:new), Socket.method(:tcp)].each do |way|
          way.call("#{name}", 80)
        rescue SocketError => error
          puts [error.class, error.message].inspect
        end
      RUBY
      network = dead_network(zone: zone)
      stock = assert_child(program, launcher: network.launcher)
      assert_equal stock, assert_child("Heddle.run do\n#{program}\nend", launcher: network.launcher)
      assert_equal 2, stock.lines.size
    end
  end

  def test_timeouts
    network = dead_network(
      zone: {"two.test" => {"a" => %w[192.0.2.1 192.0.2.2]}, "late.test" => {"a" => ["127.0.0.1"], "delay" => 2}}
    )
    program = <<~RUBY
      require "json"
      def took
        start = Heddle::Clock.now
        yield
      rescue Errno::ETIMEDOUT, IOError => error
        [error.class.name, Heddle::Clock.now - start]
      end
      Heddle.run do
        tries = [["two.test", {connect_timeout: 0.3}], ["late.test", {resolv_timeout: 0.3}],
          ["late.test", {connect_timeout: 0.3}]]
        tasks = tries.product([TCPSocket.method(:new), Socket.method(:tcp)]).map do |(host, options), way|
          Heddle.spawn { took { way.call(host, 80, **options) } }
        end
        puts JSON.generate(tasks.map(&:value))
      end
    RUBY
    outcomes = nil
    3.times do # the machine may have been busy
      outcomes = JSON.parse(assert_child(program, launcher: network.launcher))
      break if outcomes.all? { |_, seconds| seconds < stretched(0.8) }
    end
    assert_equal 6, outcomes.size
    outcomes.each { |error, seconds| assert_includes 0.29..0.8, seconds, error }
    assert_empty outcomes.map(&:first) - ["Errno::ETIMEDOUT", "IO::TimeoutError"]
  end

  # ---- what stays Ruby's

  def test_subclasses_with_their_own_initialize_run_it
    with_server(->(connection) { connection.read }) do |port|
      Heddle.run do
        socket = WithInitialize.new("localhost", port)
        assert_equal "localhost", socket.name
        socket.close
        assert_instance_of Plain, Plain.open("localhost", port).tap(&:close)
      end
    end
  end

  def test_outside_of_tasks_and_deadlines_ruby_connects
    with_server(->(connection) { connection.read }) do |port|
      assert_equal [], asked { TCPSocket.new("localhost", port).close }
      assert_equal [], asked { in_thread { TCPSocket.new("localhost", port).close } }
      assert_equal [TCPSocket], asked { Heddle.run { TCPSocket.new("localhost", port).close } }
      assert_equal [TCPSocket], asked { Heddle.deadline(5) { TCPSocket.new("localhost", port).close } }
      assert_equal [], asked { TCPSocket.new("127.0.0.1", port).close }
      # A deadline may interrupt Ruby 4.0's own connect at a moment at which it closes descriptor 0.
      by_us = (RUBY_VERSION >= "4.0") ? [TCPSocket] : []
      assert_equal by_us, asked { Heddle.deadline(5) { TCPSocket.new("127.0.0.1", port).close } }
      assert_equal [TCPSocket], asked { Heddle.run { TCPSocket.new("127.0.0.1", port).close } }
      assert_equal [],
        asked { Heddle.run { assert_raises(ArgumentError) { TCPSocket.new("localhost", port, nil, nil, 1) } } }
    end
  end

  # As Ruby's own method does with a literal address, in any notation.
  def test_addresses_in_a_task
    with_server(->(connection) { connection.write("hello") }) do |port|
      outcome = lambda do |way, host, *rest|
        socket = way.call(host, *rest)
        [socket.class, socket.remote_address.inspect_sockaddr, socket.read]
      rescue SystemCallError, SocketError => error
        [error.class, error.message]
      ensure
        socket&.close
      end
      calls = %w[127.0.0.1 127.1 0x7f.1 2130706433 ::1 ::ffff:127.0.0.1 127.0.0.300 1:2:3].product([port, port.to_s, 1])
      calls += [["127.0.0.1", port, "127.0.0.1"], ["127.0.0.1", port, "::1"], ["127.0.0.1", 1, "127.0.0.1"],
        ["0.0.0.0", port], ["255.255.255.255", port]]
      calls.product([TCPSocket.method(:new), Socket.method(:tcp)]).each do |arguments, way|
        ours, rubys = [true, false].map do |fast|
          Heddle.fast_fallback = fast
          Heddle.run { outcome.call(way, *arguments) }
        end
        assert_equal rubys, ours, [way, arguments].inspect
      end
    end
  ensure
    Heddle.fast_fallback = true
  end

  def test_the_fast_connect_can_be_switched_off
    assert Heddle.fast_fallback
    Heddle.fast_fallback = false
    with_server(->(connection) { connection.read }) do |port|
      assert_equal [], asked { Heddle.run { TCPSocket.new("localhost", port).close } }
    end
  ensure
    Heddle.fast_fallback = true
  end

  def test_rubys_own_switch_is_respected
    skip "Ruby has had that switch since 3.4" unless Socket.respond_to?(:tcp_fast_fallback)

    with_server(->(connection) { connection.read }) do |port|
      assert_equal [], asked { Heddle.run { TCPSocket.new("localhost", port, fast_fallback: false).close } }
      Socket.tcp_fast_fallback = false
      assert_equal [], asked { Heddle.run { TCPSocket.new("localhost", port).close } }
      assert_equal [TCPSocket], asked { Heddle.run { TCPSocket.new("localhost", port, fast_fallback: true).close } }
    end
  ensure
    Socket.tcp_fast_fallback = true if Socket.respond_to?(:tcp_fast_fallback)
  end

  # Minitest's stub aliases the method, defines it again and aliases it back. A method that is replaced here stays
  # replaced for the process, so a child does it.
  def test_other_code_may_replace_the_methods
    out = assert_child(<<~RUBY, gems: true)
      require "minitest/mock"
      server = TCPServer.new("127.0.0.1", 0) # without a name it is closed by the next collection
      port = server.addr[1]
      [[TCPSocket, :new], [TCPSocket, :open], [Socket, :tcp]].each do |kind, name|
        puts kind.stub(name, :stub) {
          [kind.send(name, "127.0.0.1", port), Heddle.run { kind.send(name, "localhost", port) }].inspect
        }
        puts kind.send(name, "127.0.0.1", port).class, Heddle.run { kind.send(name, "localhost", port) }.class
      end
    RUBY
    assert_equal %w[TCPSocket TCPSocket Socket].flat_map { |kind| ["[:stub, :stub]", kind, kind] },
      out.lines(chomp: true)
  end

  # Both replacements on the class itself and modules in front of it.
  def test_methods_that_other_code_replaced_before_are_called
    Tempfile.create(["patches", ".rb"]) do |patches|
      patches.write(<<~RUBY)
        require "socket"
        def TCPSocket.open(*) = puts("own") || super
        Socket.singleton_class.prepend(Module.new { def tcp(*) = puts("prepended") || super })
      RUBY
      patches.close
      out = assert_child(<<~RUBY, env: {"RUBYOPT" => "-r#{patches.path}"})
        server = TCPServer.new("127.0.0.1", 0)
        port = server.addr[1]
        puts TCPSocket.open("127.0.0.1", port).class, Socket.tcp("127.0.0.1", port).class
        puts Socket.tcp("127.0.0.1", port) { |socket| socket.class }, Heddle.run { Socket.tcp("localhost", port) }.class
      RUBY
      assert_equal %w[own prepended TCPSocket Socket prepended prepended Socket Socket], out.split
    end
  end

  def test_ractors_connect
    out = assert_child(<<~RUBY)
      server = TCPServer.new("127.0.0.1", 0)
      $VERBOSE = nil
      # Ruby 4.0 deadlocks where Socket.tcp looks a name up in a Ractor, without Heddle too.
      ractor = Ractor.new(server.addr[1]) do |port|
        [TCPSocket.new("localhost", port), Socket.tcp("127.0.0.1", port)].map do |socket|
          socket.remote_address.ip_port.tap { socket.close }
        end
      end
      puts (ractor.respond_to?(:value) ? ractor.value : ractor.take) == [server.addr[1]] * 2
    RUBY
    assert_equal "true\n", out
  end

  # ---- early ends

  # Cancelled, timed out, past a deadline, interrupted from another thread: at whatever point, no descriptor is left.
  # The kernel does not give up meanwhile, however slow the machine is.
  NOBODY_ANSWERS = {zone: {"two.test" => {"a" => %w[192.0.2.1 192.0.2.2], "aaaa" => ["2001:db8::1"]},
                           "late.test" => {"a" => ["192.0.2.3"], "delay" => 0.6}}, syn_retries: 6}.freeze
  OPEN_ONES = <<~RUBY
    def open_ones = Dir.children("/proc/self/fd").size
    # What was asking the name server is its library's, until it has answered.
    def settled(before)
      1000.times { (open_ones > before) ? sleep(0.01) : break }
      [open_ones - before, 0].max
    end
    Heddle.run do
      [Heddle.spawn { TCPSocket.new("two.test", 80) }.tap { sleep 0.01 }, Heddle.spawn { sleep }].each(&:cancel)
    end
  RUBY

  def test_a_thousand_cancelled_connects_leave_nothing_open
    out = assert_child(<<~RUBY, launcher: dead_network(**NOBODY_ANSWERS).launcher, timeout: 50)
      #{OPEN_ONES}
      Heddle.run do
        sleep 0.001
        before = open_ones
        tasks = Array.new(1000) { |n| Heddle.spawn { TCPSocket.new(n.odd? ? "two.test" : "late.test", 80) } }
        1000.times { (open_ones > before + 500) ? break : sleep(0.01) }
        puts open_ones > before + 500
        tasks.each(&:cancel).each(&:wait)
        puts tasks.map(&:status).uniq.inspect, settled(before)
      end
    RUBY
    assert_equal ["true", "[:cancelled]", "0"], out.lines(chomp: true)
  end

  def test_connects_that_time_out_leave_nothing_open
    out = assert_child(<<~RUBY, launcher: dead_network(**NOBODY_ANSWERS).launcher)
      #{OPEN_ONES}
      require "timeout"
      connect = ->(*) { TCPSocket.new("two.test", 80) }
      Heddle.run do
        sleep 0.001
        before = open_ones
        tasks = Array.new(20) { |n| Heddle.spawn { Heddle.deadline(0.01 * n, &connect) } } +
          Array.new(10) { |n| Heddle.spawn { Timeout.timeout(0.001 + 0.03 * n, &connect) } }
        puts tasks.map { |task| task.value rescue $!.class }.tally, settled(before)
      end
    RUBY
    assert_equal [{Heddle::DeadlineExceeded => 20, Timeout::Error => 10}.inspect, "0"], out.lines(chomp: true)
  end

  def test_interrupted_threads_leave_nothing_open
    out = assert_child(<<~RUBY, launcher: dead_network(**NOBODY_ANSWERS).launcher)
      #{OPEN_ONES}
      before = open_ones
      threads = Array.new(30) { Thread.new { Heddle.deadline(30) { TCPSocket.new("two.test", 80) } } }
      threads.each_with_index do |thread, n|
        thread.report_on_exception = false
        sleep 0.01
        n.odd? ? thread.raise(KeyError) : thread.kill
      end
      puts threads.map { |thread| thread.join && :killed rescue $!.class }.tally, settled(before)
    RUBY
    assert_equal [{:killed => 15, KeyError => 15}.inspect, "0"], out.lines(chomp: true)
  end

  def test_descriptors_run_out_and_come_back
    out = assert_child(<<~RUBY)
      server = TCPServer.new("127.0.0.1", 0)
      Heddle.run do
        Process.setrlimit(:NOFILE, Dir.children("/proc/self/fd").size + 5)
        sockets = []
        begin
          10.times { sockets << TCPSocket.new("localhost", server.addr[1]) }
        rescue Errno::EMFILE => error
          puts error.message
        end
        sockets.each(&:close)
        TCPSocket.new("localhost", server.addr[1]).close
        puts sockets.size
      end
    RUBY
    lines = out.lines(chomp: true)
    assert_match(/\AToo many open files - socket\(2\) for "localhost" port \d+\z/, lines[0])
    assert_includes 1..9, lines[1].to_i
  end

  # A server whose queue is full does not answer either.
  def test_a_server_that_never_accepts
    server = Socket.new(:INET, :STREAM)
    server.bind(Addrinfo.tcp("127.0.0.1", 0))
    server.listen(0)
    port = server.local_address.ip_port
    waiting = Array.new(3) do
      Socket.new(:INET, :STREAM).tap do |socket|
        socket.connect_nonblock(Addrinfo.tcp("127.0.0.1", port), exception: false)
      end
    end
    wait_until(what: "a full queue") { waiting.any? { |socket| socket.wait_writable(0) } }
    before = descriptor_count
    Heddle.run do
      assert_within(0.8) do
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { TCPSocket.new("localhost", port) } }
      end
      late = Heddle.spawn { TCPSocket.new("localhost", port) }
      sleep 0.02
      accepter = Heddle.spawn { loop { server.accept } }
      late.value.close # the kernel tries again after a second
      accepter.cancel
    end
    GC.start
    assert_operator descriptor_count, :<=, before + 8
  ensure
    [server, *waiting].each { |socket| socket&.close }
  end

  private

  def traits(socket)
    [socket.class, socket.remote_address.ip_address, socket.sync, socket.binmode?, socket.do_not_reverse_lookup,
      socket.close_on_exec?,
      socket.fcntl(3), socket.external_encoding, socket.getsockopt(:TCP, :NODELAY).int,
      socket.inspect.sub(/fd \d+/, "").gsub(/\d{4,}/, "")]
  ensure
    socket.close
  end

  def assert_same_error(&attempt)
    expected = assert_raises(StandardError, &attempt)
    error = assert_raises(StandardError) { Heddle.run(&attempt) }
    assert_equal [expected.class, expected.message], [error.class, error.message]
  end

  # The classes whose connects Heddle replaces.
  def asked
    classes = []
    trace = TracePoint.new(:call) { |point|
      classes << point.binding.local_variable_get(:tcp_class) if point.method_id == :plain?
    }
    trace.enable { yield }
    classes
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/certificates"
require "support/loop_helpers"
require "io/console"
require "io/nonblock"
require "openssl"
require "pty"
require "tmpdir"

# Methods that end in _nonblock never wait, whatever their receiver: a server that drains its self-pipe until it is
# empty would hang. In a task and under a plain scheduler each answers as Ruby does without a scheduler.
class NonblockingMethodsTest < Minitest::Test
  include LoopHelpers

  # A subclass of the scheduler may have its own hooks, which Ruby's methods call.
  class Derived < Heddle::Scheduler
  end

  def self.scheduled(scheduler)
    lambda do |work|
      result = nil
      Fiber.set_scheduler(scheduler.new)
      Fiber.schedule { result = work.call }
      Fiber.scheduler.close
      result
    end
  end
  private_class_method :scheduled

  # Each on a thread of its own.
  WAYS = {
    thread: :call.to_proc,
    task: ->(work) { Heddle.run { work.call } },
    plain_scheduler: scheduled(Heddle::Scheduler),
    subclass: scheduled(Derived)
  }.freeze

  # Pairs of ends: what is written to +far+ can be read from +near+, and the other way round where that is possible.
  KINDS = {
    pipe: ->(_) { IO.pipe },
    blocking_pipe: ->(_) { IO.pipe.each { |io| io.nonblock = false } },
    fifo: ->(folder) {
      File.mkfifo(path = "#{folder}/#{rand(1 << 60)}")
      [File.open(path, File::RDONLY | File::NONBLOCK), File.open(path, File::WRONLY | File::NONBLOCK)].each do |io|
        io.sync = true
      end
    },
    terminal: ->(_) { PTY.open.reverse.each { |io| io.raw!.sync = true } },
    master: ->(_) { PTY.open.each { |io| io.sync = true }.tap { |_, slave| slave.raw! } },
    file: ->(folder) {
      path = "#{folder}/#{rand(1 << 60)}"
      far = File.open(path, "w").tap { |io| io.sync = true }
      [File.open(path, "r"), far]
    },
    zero: ->(_) { [File.open("/dev/zero"), File.open(File::NULL, "w").tap { |io| io.sync = true }] },
    null: ->(_) { [File.open(File::NULL), File.open(File::NULL, "w").tap { |io| io.sync = true }] },
    unix: ->(_) { UNIXSocket.pair },
    datagrams: ->(_) { UNIXSocket.pair(:DGRAM) },
    tcp: ->(_) {
      server = TCPServer.new("127.0.0.1", 0)
      [TCPSocket.new("127.0.0.1", server.addr[1]), server.accept].tap { server.close }
    },
    udp: ->(_) {
      near, far = Array.new(2) { UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) } }
      near.connect(*far.addr.values_at(3, 1))
      far.connect(*near.addr.values_at(3, 1))
      [near, far]
    }
  }.freeze

  READS = {
    "read_nonblock" => ->(near) { near.read_nonblock(5) },
    "read_nonblock, no exception" => ->(near) { near.read_nonblock(5, exception: false) },
    "read_nonblock, a String" => ->(near) { [near.read_nonblock(5, text = +"old", exception: false), text] },
    "read_nonblock, no bytes" => ->(near) { near.read_nonblock(0, exception: false) },
    "read_nonblock, a frozen String" => ->(near) { near.read_nonblock(5, "frozen", exception: false) },
    "read_nonblock until no bytes are left" => ->(near) {
      Array.new(5) { near.read_nonblock(2, exception: false) }.take(3)
    },
    "read_nonblock with bytes read ahead" =>
      ->(near) { near.ungetbyte("z").then { Array.new(2) { near.read_nonblock(9, exception: false) } } },
    "read_nonblock of IO itself" =>
      ->(near) { IO.instance_method(:read_nonblock).bind_call(near, 5, exception: false) },
    "wait_readable(0)" => ->(near) { near.wait_readable(0).nil? },
    "IO.select, 0" => ->(near) { IO.select([near], nil, nil, 0)&.first&.size }
  }.freeze

  SOCKET_READS = {
    "recv_nonblock" => ->(near) { near.recv_nonblock(5) },
    "recv_nonblock, no exception" => ->(near) { near.recv_nonblock(5, exception: false) },
    "recvmsg_nonblock" => ->(near) { near.recvmsg_nonblock(5).first },
    "recvmsg_nonblock, no exception" =>
      ->(near) { near.recvmsg_nonblock(5, exception: false).then { |got| got.is_a?(Array) ? got.first : got } },
    "recvfrom_nonblock" => ->(near) { near.respond_to?(:recvfrom_nonblock) && near.recvfrom_nonblock(5).first }
  }.freeze

  WRITES = {
    "write_nonblock" => ->(io) { io.write_nonblock("abc") },
    "write_nonblock, no exception" => ->(io) { io.write_nonblock("abc", exception: false) },
    "write_nonblock, nothing" => ->(io) { io.write_nonblock("", exception: false) },
    "write_nonblock, much" => ->(io) {
      io.write_nonblock("x" * 10_000_000, exception: false).then do |count|
        count.is_a?(Symbol) ? count : count.positive?
      end
    },
    "wait_writable(0)" => ->(io) { io.wait_writable(0).nil? }
  }.freeze

  SOCKET_WRITES = {
    "sendmsg_nonblock" => ->(io) { io.sendmsg_nonblock("abc") },
    "sendmsg_nonblock, no exception" => ->(io) { io.sendmsg_nonblock("abc", exception: false) }
  }.freeze

  # Receivers of reads.
  SOURCES = {
    "nothing there" => ->(_, _) {},
    "some there" => ->(_, far) { far.syswrite("hello") },
    "the end" => ->(_, far) { far.close },
    "some bytes, then the end" => ->(_, far) { far.syswrite("hello").then { far.close } },
    "closed" => ->(near, _) { near.close }
  }.freeze

  # The kernel moves bytes on a moment later, and so makes room: fills it until it has stayed full for a while.
  FILL = ->(io) {
    full = 0
    while full < 5
      count = 0
      count += 1 while count < 5000 && io.write_nonblock("x" * 20_000, exception: false) != :wait_writable
      full = count.zero? ? full + 1 : 0
      sleep(0.002)
    end
  }

  # Receivers of writes.
  SINKS = {
    "room" => ->(_, _) {},
    "no room" => ->(_, far) { FILL.call(far) },
    "a closed reader" => ->(near, _) { near.close },
    "closed" => ->(_, far) { far.close }
  }.freeze

  SOCKETS = %i[unix datagrams tcp udp].freeze

  KINDS.each_key do |kind|
    define_method("test_reading_from_#{kind}") do
      reads = SOCKETS.include?(kind) ? {**READS, **SOCKET_READS} : READS
      reads.to_a.product(SOURCES.to_a).each do |(name, work), (state, prepare)|
        assert_as_without_a_scheduler("#{name}: #{state}", kind,
          ->(near, far) { prepare.call(near, far).then { work.call(near) } })
      end
    end

    define_method("test_writing_to_#{kind}") do
      writes = SOCKETS.include?(kind) ? {**WRITES, **SOCKET_WRITES} : WRITES
      # Files always have room; terminals and TCP make room a moment later; datagrams without a receiver are lost at
      # once or later.
      sinks = %i[file zero null terminal master tcp].include?(kind) ? SINKS.except("no room") : SINKS
      sinks = sinks.except("no room", "a closed reader") if kind == :udp
      writes.to_a.product(sinks.to_a).each do |(name, work), (state, prepare)|
        next if kind == :terminal && state == "a closed reader" # a hang-up comes later

        assert_as_without_a_scheduler("#{name}: #{state}", kind,
          ->(near, far) { prepare.call(near, far).then { work.call(far) } })
      end
    end
  end

  # Methods that wait without a scheduler wait in a task, and others run meanwhile.
  WAITING_READS = {
    "readpartial" => ->(near) { near.readpartial(5) },
    "sysread" => ->(near) { near.sysread(5) },
    "sysread into a String" => ->(near) { near.sysread(5, text = +"old").then { text } },
    "gets" => ->(near) { near.gets("o") },
    "getc" => ->(near) { near.getc },
    "readbyte" => ->(near) { near.readbyte },
    "read" => ->(near) { near.read(5) },
    "eof?" => ->(near) { near.eof? }
  }.freeze

  (KINDS.keys - %i[file zero null]).each do |kind|
    define_method("test_blocking_methods_still_wait_on_#{kind}") do
      WAITING_READS.each do |name, work|
        assert_as_without_a_scheduler(name, kind, ->(near, far) {
          writer = Thread.new { sleep(0.005) && far.syswrite("hello") }
          work.call(near).tap { writer.join }
        })
      end
    end

    next if kind == :udp # has always room

    define_method("test_syswrite_waits_for_room_on_#{kind}") do
      # Before 3.2 Ruby's own method raises EAGAIN where the descriptor is O_NONBLOCK.
      expected = (RUBY_VERSION < "3.2") ? 5 : nil
      assert_as_without_a_scheduler("syswrite", kind, expected: expected, work: ->(near, far) {
        (kind == :blocking_pipe) ? far.write_nonblock("x" * 65_536) : FILL.call(far)
        far.nonblock = false if kind == :blocking_pipe
        reader = in_background { sleep(0.005) && 200.times { near.read_nonblock(65_536, exception: false) } }
        begin
          far.syswrite("hello")
        ensure
          reader.join
        end
      })
    end
  end

  def test_waits_end_with_the_timeout_of_the_io
    skip "IO#timeout came with Ruby 3.2" unless IO.method_defined?(:timeout)
    waits = {
      "sysread" => ->(near, _) { near.sysread(5) },
      "readpartial" => ->(near, _) { near.readpartial(5) },
      "gets" => ->(near, _) { near.gets },
      "syswrite" => ->(_, far) { FILL.call(far).then { far.syswrite("x") } }
    }
    waits.to_a.product(%i[pipe unix]).each do |(name, work), kind|
      # On Ruby 4.0 Ruby's own waits for a pipe never end.
      assert_as_without_a_scheduler(name, kind, expected: IO::TimeoutError, work: ->(near, far) {
        near.timeout = far.timeout = 0.01
        begin
          work.call(near, far)
        rescue IO::TimeoutError => error
          error.class
        end
      })
    end
  end

  def test_stdin
    ["", "hello"].each do |text|
      program = "p Array.new(3) { $stdin.read_nonblock(3, exception: false) }"
      answers = [program, "Heddle.run { #{program} }"].map do |code|
        reader, writer = IO.pipe
        writer.syswrite(text)
        assert_child(code, in: reader)
      ensure
        [reader, writer].each(&:close)
      end
      assert_equal answers[0], answers[1]
    end
  end

  # As Puma and Unicorn drain the pipe that their trap handlers write to.
  def test_a_self_pipe_is_drained
    WAYS.each_value do |way|
      reader, writer = IO.pipe
      3.times { writer.write_nonblock(".") }
      drain = -> {
        count = 0
        begin
          loop { count += reader.read_nonblock(1).bytesize }
        rescue IO::WaitReadable
          count
        end
      }
      assert_equal 3, bounded(-> { way.call(drain) })
    ensure
      [reader, writer].each(&:close)
    end
  end

  def test_accept_nonblock
    Dir.mktmpdir do |folder|
      servers = {
        tcp: -> { TCPServer.new("127.0.0.1", 0) },
        unix: -> { UNIXServer.new("#{folder}/#{rand(1 << 60)}") },
        plain: -> { Socket.tcp_server_sockets("127.0.0.1", 0).first }
      }
      servers.each do |kind, make|
        answers = WAYS.transform_values do |way|
          server = make.call
          client = nil
          answer = bounded(-> {
            way.call(-> {
              none = [server.accept_nonblock(exception: false), told { server.accept_nonblock }]
              client =
                (kind == :unix) ? UNIXSocket.new(server.path) : TCPSocket.new("127.0.0.1", server.local_address.ip_port)
              wait_until { IO.select([server], nil, nil, 0) }
              accepted = server.accept_nonblock(exception: false)
              accepted = accepted.first if accepted.is_a?(Array) # and the address; an IO is Enumerable
              [none, accepted.class, accepted.close]
            })
          })
          [server, client].compact.each(&:close)
          answer
        end
        assert_same_answers(answers, "accept_nonblock, #{kind}")
      end
    end
  end

  def test_connect_nonblock
    server = TCPServer.new("127.0.0.1", 0)
    answers = WAYS.transform_values do |way|
      socket = Socket.new(:INET, :STREAM)
      bounded(-> {
        way.call(-> {
          first = told { socket.connect_nonblock(server.local_address, exception: false) }
          socket.wait_writable(5)
          [first, told { socket.connect_nonblock(server.local_address, exception: false) },
            told { socket.connect_nonblock(server.local_address) }]
        })
      })
    ensure
      socket&.close
    end
    assert_same_answers(answers, "connect_nonblock")
  ensure
    server&.close
  end

  TLS = {
    "nothing there" => ->(near, _) { near.read_nonblock(5, exception: false) },
    "nothing there, an exception" => ->(near, _) { near.read_nonblock(5) },
    "some there" => ->(near, far) {
      far.write("hello").then { near.to_io.wait_readable(5) }.then do
        Array.new(2) { near.read_nonblock(3, exception: false) }
      end
    },
    "the end" =>
      ->(near, far) { far.close.then { near.to_io.wait_readable(5) }.then { near.read_nonblock(5, exception: false) } },
    "room" => ->(near, _) { near.write_nonblock("abc", exception: false) },
    "no room" => ->(near, _) {
      5000.times.find { near.write_nonblock("x" * 20_000, exception: false) == :wait_writable }.positive?
    },
    "closed" => ->(near, _) { near.close.then { near.read_nonblock(5, exception: false) } }
  }.freeze

  def test_tls
    Certificates.context # made once, not in a task
    TLS.each do |name, work|
      answers = WAYS.transform_values do |way|
        bounded(-> { way.call(-> { with_tls { |near, far| told { work.call(near, far) } } }) })
      end
      assert_same_answers(answers, "TLS, #{name}")
    end
  end

  private

  # A handshake by *_nonblock on both sides, in one fiber.
  def with_tls
    near, far = UNIXSocket.pair
    client_context = OpenSSL::SSL::SSLContext.new
    client_context.verify_mode = OpenSSL::SSL::VERIFY_NONE
    client = OpenSSL::SSL::SSLSocket.new(near, client_context)
    server = OpenSSL::SSL::SSLSocket.new(far, Certificates.context)
    client.sync_close = server.sync_close = true
    steps = Array.new(20) {
      [client.connect_nonblock(exception: false), server.accept_nonblock(exception: false)].map do |step|
        step.is_a?(Symbol) ? step : :done
      end
    }
    raise "no handshake" unless steps.last == %i[done done]

    # Session tickets are read with the first bytes.
    [steps.uniq, client.read_nonblock(1, exception: false), yield(client, server)]
  ensure
    [near, far].compact.each(&:close)
  end

  # Or as +expected+, where Ruby's own answer differs.
  def assert_as_without_a_scheduler(name, kind, task = nil, work: task, expected: nil)
    Dir.mktmpdir do |folder|
      answers = WAYS.transform_values do |way|
        ends = KINDS.fetch(kind).call(folder)
        bounded(-> { way.call(-> { told { work.call(*ends) } }) })
      ensure
        ends&.each { |io| io.close unless io.closed? }
      end
      answers[:thread] = expected if expected
      assert_same_answers(answers, "#{name}, #{kind}")
    end
  end

  def assert_same_answers(answers, what)
    refute_equal :waits_for_ever, answers[:thread], "#{what}: without a scheduler it has no answer to compare with"
    answers.each { |way, answer| assert_equal answers[:thread].inspect, answer.inspect, "#{what}: in a #{way}" }
  end

  # The result, or the exception's class and text.
  def told
    yield
  rescue => error
    [error.class, error.message.gsub(%r{/\S+|fd:\d+|#<.*>}, "…")]
  end

  def bounded(work)
    thread = in_background(&work)
    return thread.value if thread.join(stretched(5))

    thread.kill
    :waits_for_ever
  end
end

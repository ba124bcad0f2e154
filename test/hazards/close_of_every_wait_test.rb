# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/scripted_mysql"
require "support/stream_helpers"
require "heddle/net_http"
require "io/wait"
require "openssl"
require "pty"

runs_on also: %i[yjit]

# IO#close under every kind of wait, from another task, from other threads and from a trap handler: the wait ends with
# IOError, or with the error that the client documents, and nobody else notices.
class CloseOfEveryWaitTest < Minitest::Test
  include StreamHelpers

  MESSAGE = "stream closed in another thread" # Ruby's own
  BOUND = 10 # seconds, for a wait that takes less than one millisecond
  FLOOD = "x" * 8_000_000 # more than any socket or pipe takes

  # @!attribute io [IO, #call] what is closed; a Proc finds it once the wait has begun
  # @!attribute wait [Proc]
  # @!attribute error [Class] the error that the wait raises
  # @!attribute message [String, Regexp] the error's message
  # @!attribute begun [Proc, nil] whether the wait has begun
  Kind = Struct.new(:io, :wait, :error, :message, :begun, keyword_init: true) do
    def initialize(error: IOError, message: MESSAGE, **others) = super
  end

  # One block a kind, run in the test; it returns a Kind.
  KINDS = {}

  def self.kind(name, &block)
    KINDS[name] = block
  end

  # Kinds that differ only in the method.
  def self.kinds(methods, on:)
    methods.each do |name, wait|
      kind("#{name} on #{on}") { send(on).then { |io| Kind.new(io: io, wait: -> { wait.call(io) }) } }
    end
  end

  READS = {
    "read" => ->(io) { io.read(1) }, "read to the end" => ->(io) { io.read }, "gets" => ->(io) { io.gets },
    "getc" => ->(io) { io.getc },
    "readpartial" => ->(io) { io.readpartial(1) }, "sysread" => ->(io) { io.sysread(1) }, "eof?" => ->(io) { io.eof? },
    "wait_readable" => ->(io) { io.wait_readable }, "wait_readable(30)" => ->(io) { io.wait_readable(30) },
    "wait" => ->(io) { io.wait(30) }, "wait for several events" => ->(io) { io.wait(IO::READABLE | IO::PRIORITY, 30) },
    "IO.select to read" => ->(io) { IO.select([io]) }, "IO.select for all" => ->(io) { IO.select([io], nil, [io], 30) },
    "Kernel#select" => ->(io) { select([io]) }, "copy_stream" => ->(io) { IO.copy_stream(io, StringIO.new) },
    "each_line in a fiber of the task's own" => ->(io) { Fiber.new(blocking: false) { io.each_line.to_a }.resume }
  }.freeze
  WRITES = {
    "write" => ->(io) { io.write(FLOOD) }, "syswrite" => ->(io) { loop { io.syswrite(FLOOD) } },
    "several writes" => ->(io) { io.write("x", FLOOD) },
    "wait_writable" => ->(io) { io.wait_writable }, "wait_writable(30)" => ->(io) { io.wait_writable(30) },
    "IO.select to write" => ->(io) { IO.select(nil, [io]) },
    "copy_stream from" => ->(io) { IO.copy_stream(StringIO.new(FLOOD), io) }
  }.freeze

  kinds(READS, on: :socket)
  kinds(READS, on: :pipe)
  kinds(READS.slice("readpartial", "gets", "wait_readable", "IO.select to read"), on: :pty)
  kinds(READS.slice("readpartial", "gets", "wait_readable", "IO.select to read"), on: :program)
  kinds(WRITES, on: :full_socket)
  kinds(WRITES, on: :full_pipe)
  kinds({
    "recv" => ->(io) { io.recv(1) }, "recvmsg" => ->(io) { io.recvmsg(1) }, "recvfrom" => ->(io) { io.recvfrom(1) },
    "recv_io" => ->(io) { io.recv_io }, "wait_priority" => ->(io) { io.wait_priority(30) },
    "IO.select for urgent data" => ->(io) { IO.select(nil, nil, [io]) }
  }, on: :socket)
  kinds({
    "send" => ->(io) { loop { io.send(FLOOD, 0) } }, "sendmsg" => ->(io) { loop { io.sendmsg(FLOOD) } }
  }, on: :full_socket)
  kinds({
    "recvfrom" => ->(io) { io.recvfrom(1) }, "recv" => ->(io) { io.recv(1) },
    "wait_readable" => ->(io) { io.wait_readable }
  }, on: :udp)
  kinds({"accept" => ->(io) { io.accept }, "wait_readable" => ->(io) { io.wait_readable }}, on: :tcp_server)
  kinds({"accept" => ->(io) { io.accept }, "sysaccept" => ->(io) { io.sysaccept }}, on: :unix_server)
  kinds({"accept" => ->(io) { io.accept }}, on: :listening_socket)

  kind("IO.select among others") do
    io, others = socket, Array.new(3) { socket }
    Kind.new(io: io, wait: -> { IO.select([*others, io], [full_socket], others) })
  end

  kind("IO.select as the first of the writers among others") do
    io, others = full_socket, Array.new(3) { socket }
    Kind.new(io: io, wait: -> { IO.select(others, [io, full_socket], [full_socket]) })
  end

  kind("connect") do
    server = keep(Socket.new(:INET, :STREAM).tap { |socket| socket.bind(Addrinfo.tcp("127.0.0.1", 0)) })
    server.listen(0) # the kernel leaves connects unanswered once its queue is full
    address = server.local_address
    3.times { keep(Socket.new(:INET, :STREAM)).connect_nonblock(address, exception: false) }
    io = keep(Socket.new(:INET, :STREAM))
    Kind.new(io: io, wait: -> { io.connect(address) })
  end

  # SSLSocket, from the first byte of the handshake on.
  {"connect" => :connect, "accept" => :accept}.each do |name, method|
    kind("TLS #{name}") do
      io = socket
      context = (method == :accept) ? Certificates.context : OpenSSL::SSL::SSLContext.new
      secure = keep(OpenSSL::SSL::SSLSocket.new(io, context))
      Kind.new(io: io, wait: -> { secure.public_send(method) })
    end
  end

  {
    "readpartial" => ->(io) { io.readpartial(1) }, "gets" => ->(io) { io.gets }, "read" => ->(io) { io.read(1) },
    "write" => ->(io) { io.write(FLOOD) && io.flush }
  }.each do |name, wait|
    kind("TLS #{name}, its socket closed") do
      secure_socket.then { |secure| Kind.new(io: secure.to_io, wait: -> { wait.call(secure) }) }
    end
    next if name == "write" # SSLSocket#close first sends the written bytes, and waits for that itself

    kind("TLS #{name}, closed itself") do
      secure_socket.then { |secure| Kind.new(io: secure, wait: -> { wait.call(secure) }) }
    end
  end

  STREAM_WAITS = {
    "read" => ->(stream) { stream.read(1) }, "gets" => ->(stream) { stream.gets },
    "readpartial" => ->(stream) { stream.readpartial(1) },
    "peek" => ->(stream) { stream.peek(1) }, "eof?" => ->(stream) { stream.eof? },
    "wait_readable" => ->(stream) { stream.wait_readable },
    "write" => ->(stream) { stream.write(FLOOD) && stream.flush },
    "an exchange" => ->(stream) { stream.exchange { stream.write("a") && stream.gets } },
    "read within a timeout" => ->(stream) { (stream.read_timeout = 30) && stream.read(1) }
  }.freeze

  STREAM_WAITS.each do |name, wait|
    kind("Stream: #{name}, closed itself") do
      stream.then { |stream| Kind.new(io: stream, wait: -> { wait.call(stream) }) }
    end
    kind("Stream: #{name}, its socket closed") do
      stream.then { |stream| Kind.new(io: stream.to_io, wait: -> { wait.call(stream) }) }
    end
    kind("Stream with TLS: #{name}, closed itself") do
      secure_stream.then { |stream| Kind.new(io: stream, wait: -> { wait.call(stream) }) }
    end
    kind("Stream with TLS: #{name}, its socket closed") do
      secure_stream.then { |stream| Kind.new(io: stream.to_io, wait: -> { wait.call(stream) }) }
    end
  end

  kind("Stream: connect, in its handshake") do
    port = silent_server
    found = -> { socket_to(port) }
    Kind.new(io: found, wait: -> { Heddle::Stream.connect("127.0.0.1", port, tls: true) }, begun: found)
  end

  {"the head" => "HTTP/1.1 200 OK\r\nContent-", "a sized body" => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
   "a chunk" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
   "a body up to the end" => "HTTP/1.1 200 OK\r\n\r\nhello"}.each do |where, bytes|
    %i[enable disable].each do |switch|
      kind("#{(switch == :enable) ? "accelerated" : "stock"} Net::HTTP in #{where}") do
        Heddle::NetHTTP.public_send(switch)
        before = Heddle::NetHTTP.stats[:fast]
        got = Thread::Queue.new
        port = serve { |peer| peer.gets("\r\n\r\n") && peer.write(bytes) && (got << true) && sleep }
        get = -> { Net::HTTP.start("127.0.0.1", port, nil, max_retries: 0) { |http| http.get("/") } }
        # Behind a chunk Net::HTTP reads on in an `ensure`, whose error is the one that is seen.
        Kind.new(io: -> { socket_to(port) }, wait: get, message: /#{MESSAGE}|closed stream/o,
          begun: -> { got.size > 0 && (Heddle::NetHTTP.stats[:fast] > before) == (switch == :enable) })
      end
    end
  end

  kind("Net::HTTP that uploads") do
    port = silent_server
    Heddle::NetHTTP.enable
    put = -> { Net::HTTP.start("127.0.0.1", port, nil, max_retries: 0) { |http| http.put("/", FLOOD) } }
    Kind.new(io: -> { socket_to(port) }, wait: put, begun: -> { socket_to(port) })
  end

  kind("memcached get") do
    port = serve { |peer| peer.gets && peer.write("VERSION 1.6.18\r\n") && sleep }
    cache = Heddle::Memcached.new("127.0.0.1:#{port}", timeout: 30)
    Kind.new(io: -> { socket_to(port) }, wait: -> { cache.get("key") }, begun: -> { socket_to(port) })
  end

  kind("MySQL query") do
    asked = Thread::Queue.new
    server = keep(ScriptedMySQL.new { |peer| peer.welcome && (asked << peer.request) && sleep })
    query = -> { Heddle::DB.connect(server.url, timeout: 30).query("select 1") }
    Kind.new(io: -> { socket_to(server.port) }, wait: query, begun: -> { asked.size > 0 },
      error: Heddle::DB::ConnectionLost, message: /#{MESSAGE}.*may or may not have executed the last request/o)
  end

  kind("offload that reads") do
    socket.then { |io| Kind.new(io: io, wait: -> { Heddle.offload { io.read(1) } }, begun: -> { threads_in("read") }) }
  end

  # Closing the worker's socket ends the call, not the process that calls.
  kind("Heddle.map over processes") do
    # A worker's own end is open here, too, until it is forked: only Worker knows which is ours.
    ends = Heddle::Processes.const_get(:Worker).instance_variable_get(:@ends)
    ours = -> { ends.keys.first if ends.size == 2 }
    Kind.new(io: ours, wait: -> { Heddle.map(1..4, fibers: 1, processes: 2) { sleep } }, begun: ours, message: /closed/)
  end

  # Each gets the block that closes, and returns when the block has.
  CLOSERS = {
    "another task" => ->(close) { Heddle.spawn(&close).value },
    "the task that waits for it" => ->(close) { close.call },
    "another thread" => ->(close) { Thread.new(&close).value },
    "a task of another thread" => ->(close) { Thread.new { Heddle.run { Heddle.spawn(&close).value } }.value },
    "a trap handler" => lambda do |close|
      done = Thread::Queue.new
      before = trap(:USR2) do
        close.call
        done << true
      rescue Exception => error # rubocop:disable Lint/RescueException
        done << error
      end
      Process.kill(:USR2, Process.pid)
      done.pop.then { |answer| raise answer if answer.is_a?(Exception) }
    ensure
      trap(:USR2, before || "DEFAULT")
    end
  }.freeze

  # In plain threads these wait by Heddle's own methods; the others wait by Ruby's.
  OURS = /\A(Stream|accelerated|memcached|MySQL|Heddle\.map)/

  KINDS.each do |name, build|
    CLOSERS.each do |closer, close|
      define_method("test_#{name}, closed by #{closer}") do
        Heddle.run { closed_under(build, close) { |wait| Heddle.spawn(&wait) } }
      end
      next unless OURS.match?(name) && closer != "another task"

      define_method("test_#{name} in a thread, closed by #{closer}") do
        closed_under(build, close) { |wait| in_background(&wait) }
      end
    end
  end

  # Ruby's IO.select then raises EBADF: this stands for a close at the worst moment, which is hard to hit.
  def test_heddle_map_whose_socket_is_closed_just_before_the_kernel_looks_at_it
    out = assert_child(<<~RUBY)
      closing = Module.new { define_method(:select) { |sockets, *| sockets.first.close || raise(Errno::EBADF) } }
      IO.singleton_class.prepend(closing)
      begin
        Heddle.map(1..4, processes: 2) { sleep }
      rescue IOError => error
        puts error.message
      end
    RUBY
    assert_equal "closed stream\n", out
  end

  # In its own loop, in another thread's, and in plain threads.
  def test_close_ends_all_waits_for_one_io
    {READS => :socket, WRITES => :full_socket}.each do |waits, on|
      Heddle.run do
        io = send(on)
        waits = waits.except("wait for several events").values
        tasks = waits.map { |wait| waiter_of(-> { wait.call(io) }) { |body| Heddle.spawn(&body) } }
        in_other_loop = Thread::Queue.new
        @threads << in_background do
          Heddle.run do
            waits.each { |wait| in_other_loop << waiter_of(-> { wait.call(io) }) { |body| Heddle.spawn(&body) } }
          end
        end
        threads = [waits.first, waits.last].map do |wait|
          waiter_of(-> { Heddle.deadline(30) { wait.call(io) } }) { |body| in_background(&body) }
        end
        wait_until(what: "the waits") { in_other_loop.size == waits.size && threads.all?(&:stop?) }
        sleep(0.01)
        Heddle.deadline(BOUND) { io.close }
        errors = [*tasks, *Array.new(waits.size) { in_other_loop.pop }, *threads].map { |waiter| outcome(waiter) }
        assert_empty errors.reject { |error| error.is_a?(IOError) }
      end
    end
  end

  # Neither the loop's work, nor the number of Ruby's hook calls (Ruby >= 4.0), nor Ruby's own methods may depend on
  # it.
  def test_a_close_costs_the_same_however_many_others_wait
    few, many = work_of_closes(others: 10), work_of_closes(others: 2000)
    assert_equal few.except(:calls), many.except(:calls)
    assert_in_delta few[:calls], many[:calls], 10 # a GC's finalizers, a signal
    assert_operator few[:calls], :>, 10 * 2
  end

  def setup
    # Descriptors of earlier tests must not be closed in the middle of this one; what they left is young.
    GC.start(full_mark: false)
    @kept = []
    @threads = []
  end

  def teardown
    Heddle::NetHTTP.disable
    @threads.each { |thread| thread.kill.join }
    @kept.each { |io| io.close unless io.respond_to?(:closed?) && io.closed? }
  end

  private

  # The block starts the waiter, in a task or in a thread.
  def closed_under(build, closer, &start)
    kind = instance_exec(&build)
    witness, other_end = pair
    others = [-> { witness.readpartial(1) }]
    # Of several threads, one may come when the byte is gone.
    others.push(-> { witness.wait_readable(30) }, -> { IO.select([witness], nil, nil, 30) }) if Fiber.scheduler
    others.map! { |other| waiter_of(other, &start) }
    waiter = waiter_of(kind.wait, &start)
    begun(kind, waiter)
    io = kind.io.respond_to?(:call) ? kind.io.call : kind.io
    Heddle.deadline(BOUND) { closer.call(-> { io.close }) }
    assert_predicate io, :closed?
    error = outcome(waiter)
    assert_kind_of kind.error, error, error.inspect
    assert_match kind.message, error.message
    assert others.all? { |other| waits?(other) }, "another was disturbed"
    other_end.write("x")
    others.rotate.each { |other| refute_kind_of Exception, outcome(other) } # the one that takes the byte comes last
  end

  def waiter_of(wait)
    yield(lambda do
      wait.call
    rescue IOError, SystemCallError, Heddle::Error, OpenSSL::SSL::SSLError => error
      error
    end)
  end

  # A thread may check again whether it still has to wait.
  def waits?(waiter) = waiter.is_a?(Thread) ? waiter.alive? : waiter.status == :waiting

  # What it raised, or returned.
  def outcome(waiter)
    assert waiter.is_a?(Thread) ? waiter.join(stretched(BOUND)) : waiter.wait(stretched(BOUND)), "it still waits"
    waiter.value
  end

  def work_of_closes(others:)
    Heddle.run do
      crowd = socket
      waits = [-> { crowd.wait_readable }, -> { sleep }, -> { Thread::Queue.new.pop }, -> { crowd.readpartial(1) }]
      tasks = Array.new(others) { |i| Heddle.spawn(&waits[i % 4]) }
      ios = Array.new(10) { socket }
      waiters = ios.map { |io| waiter_of(-> { io.readpartial(1) }) { |body| Heddle.spawn(&body) } }
      sleep(0.01) # whatever is ready has had its turn
      before, calls, interrupts = Heddle.stats, 0, 0
      counter = TracePoint.new(:call, :c_call) do |point|
        calls += 1
        interrupts += 1 if point.method_id == :fiber_interrupt
      end
      counter.enable { ios.each(&:close) }
      after = Heddle.stats
      assert_equal [MESSAGE] * 10, waiters.map { |waiter| outcome(waiter).message }
      tasks.each(&:cancel)
      work = %i[switches system_calls polls].to_h { |key| [key, after[key] - before[key]] }
      {calls: calls, interrupts: interrupts, **work}
    end
  end

  # It has done all that it can do and waits for something that never comes.
  def begun(kind, waiter)
    wait_until(what: "the wait") { kind.begun.call } if kind.begun
    20.times { sleep(0) }
    wait_until(what: "the wait") { waiter.stop? } if waiter.is_a?(Thread)
    assert waits?(waiter), "it has ended: #{outcome(waiter).inspect}" unless waits?(waiter)
  end

  # Closed at the end of the test, unless it was before.
  def keep(io)
    @kept << io
    io
  end

  def pair = UNIXSocket.pair.each { |io| keep(io) }

  def socket = pair.first

  def full_socket = fill(socket)

  def pipe = IO.pipe.each { |io| keep(io) }.first

  def full_pipe = fill(IO.pipe.each { |io| keep(io) }.last)

  def pty = PTY.open.each { |io| keep(io) }.first

  def program = keep(IO.popen("cat", "r+"))

  def udp = keep(UDPSocket.new).tap { |io| io.bind("127.0.0.1", 0) }

  def tcp_server = keep(TCPServer.new("127.0.0.1", 0))

  def unix_server = keep(UNIXServer.new("\0heddle-#{$$}-#{rand(1 << 60)}"))

  def listening_socket
    keep(Socket.new(:INET, :STREAM)).tap { |io| io.bind(Addrinfo.tcp("127.0.0.1", 0)) && io.listen(5) }
  end

  def stream = Heddle::Stream.new(socket)

  # After the handshake, and after the byte that follows all that the server's TLS sends on its own (tickets).
  def secure_socket
    near, far = pair
    peer = in_background { tls_peer(far) }
    secure = keep(OpenSSL::SSL::SSLSocket.new(near))
    secure.sync_close = true
    secure.connect
    peer.join
    secure.readpartial(1)
    secure
  end

  def secure_stream
    port = serve { |peer| tls_peer(peer) && sleep }
    stream = Heddle::Stream.connect("127.0.0.1", port, tls: {ca_file: Certificates.authority_file})
    stream.tap { stream.read(1) }
  end

  def tls_peer(io)
    keep(OpenSSL::SSL::SSLSocket.new(io, Certificates.context)).tap do |peer|
      peer.accept
      peer.write("x")
    end
  end

  # The port of a server that accepts connections, and sends nothing.
  def silent_server = tcp_server.local_address.ip_port

  # The port of a server that serves one connection with the block.
  def serve
    server = tcp_server
    @threads << in_background { yield keep(server.accept) }
    server.local_address.ip_port
  end

  # Our end of the connection to that port, also where a client has made it for itself.
  def socket_to(port)
    ObjectSpace.each_object(BasicSocket).find do |io|
      !io.closed? && io.remote_address.ip_port == port
    rescue SystemCallError, IOError, SocketError
      false # not connected, of another family, or just being made
    end
  end

  def threads_in(method)
    Thread.list.any? { |thread| thread.stop? && thread.backtrace&.first.to_s.match?(/\b#{method}'/) }
  end

  # Writes all that the kernel takes.
  def fill(io)
    [FLOOD, "x"].each { |bytes| nil until io.write_nonblock(bytes, exception: false) == :wait_writable }
    io
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "io/wait"
require "tmpdir"

# In a task readpartial and write of sockets go straight to the kernel. They must answer exactly as Ruby's own
# methods.
class SocketMethodsTest < Minitest::Test
  include LoopHelpers

  # A subclass of the scheduler may have its own hooks, which Ruby's methods call.
  class Derived < Heddle::Scheduler
  end

  # What is done to one end of a connection, +near+, by name.
  CASES = {
    "bytes that are there" =>
      ->(near, far) { far.write("hello").then { [near.readpartial(3), near.readpartial(100)] } },
    "their encoding" => ->(near, far) { far.write("é").then { near.readpartial(9).encoding } },
    "many bytes" => ->(near, far) { far.write("x" * 100_000).then { near.readpartial(50_000).bytesize.positive? } },
    "the end" => ->(near, far) { far.close.then { near.readpartial(10) } },
    "no bytes asked for" => ->(near, _) { near.readpartial(0) },
    "a negative number" => ->(near, _) { near.readpartial(-1) },
    "something other than a number" => ->(near, _) { near.readpartial("7") },
    "a String of the caller's" =>
      ->(near, far) { far.write("abc").then { [near.readpartial(10, text = +"old"), text] } },
    "bytes read ahead" => ->(near, far) { far.write("a\nbc").then { [near.gets, near.readpartial(10)] } },
    "a byte put back" => ->(near, far) {
      near.ungetbyte("z").then { far.write("y") }.then { [near.readpartial(10), near.readpartial(10)] }
    },
    "a character put back" => ->(near, far) {
      near.set_encoding("UTF-16LE:UTF-8").then { near.ungetc("zz") }.then { far.write("y") }
        .then { near.readpartial(10) }
    },
    "buffered bytes go first" => ->(near, far) {
      (near.sync = false).then { [near.write("q"), far.write("a"), near.readpartial(10), far.readpartial(10)] }
    },
    "reading from a frozen socket" => ->(near, far) { far.write("y").then { near.freeze.readpartial(1) } },
    "writing to a frozen socket" => ->(near, _) { near.freeze.write("x") },
    "reading from a closed socket" => ->(near, _) { near.close.then { near.readpartial(1) } },
    "reading after close_read" => ->(near, _) { near.close_read.then { near.readpartial(1) } },
    "read_nonblock after close_read" =>
      ->(near, _) { near.close_read.then { [near.read_nonblock(1, exception: false)] } },
    "read_nonblock of a frozen socket" =>
      ->(near, far) { far.write("y").then { near.freeze.read_nonblock(1, exception: false) } },
    "read_nonblock with buffered output" => ->(near, far) {
      (near.sync = false).then do
        [near.write("q"), near.read_nonblock(1, exception: false), far.read_nonblock(10, exception: false)]
      end
    },
    "read_nonblock with a character put back" => ->(near, far) {
      near.set_encoding("UTF-16LE:UTF-8").then { near.ungetc("zz") }.then { near.read_nonblock(1, exception: false) }
    },
    "reading from a socket that was never opened" => ->(near, _) { near.class.allocate.readpartial(1) },
    "without waiting, bytes that have arrived" => ->(near, far) {
      far.write("hello").then { [near.read_nonblock(3, exception: false), near.read_nonblock(100, exception: false)] }
    },
    "without waiting, no bytes" => ->(near, _) { near.read_nonblock(100, exception: false) },
    "without waiting, no bytes, as an error" => ->(near, _) { near.read_nonblock(100) },
    "without waiting, their encoding" =>
      ->(near, far) { far.write("é").then { near.read_nonblock(9, exception: false).encoding } },
    "without waiting, many bytes" => ->(near, far) {
      far.write("x" * 100_000).then do
        [16_384, 16_385, 7].map { |most| near.read_nonblock(most, exception: false).bytesize }
      end
    },
    "without waiting, all of many bytes" => ->(near, far) {
      far.write((0..20_000).to_a.join).then { near.read_nonblock(262_144, exception: false) }
    },
    "without waiting, the end" => ->(near, far) {
      far.close.then do
        [near.read_nonblock(10, exception: false), near.read_nonblock(10, text = +"old", exception: false), text]
      end
    },
    "without waiting, the end as an error" => ->(near, far) { far.close.then { near.read_nonblock(10) } },
    "without waiting, bytes or an error" => ->(near, far) {
      far.write("hello").then { [near.read_nonblock(3), near.read_nonblock(100, text = +"old"), text] }
    },
    "without waiting, no bytes into a String, as an error" => ->(near, _) {
      begin
        near.read_nonblock(10, text = +"old")
      rescue IO::WaitReadable => error
        [error.class, error.message, text]
      end
    },
    "without waiting, the end into a String, as an error" => ->(near, far) {
      far.close
      begin
        near.read_nonblock(10, text = +"old")
      rescue EOFError => error
        [error.message, text]
      end
    },
    "without waiting, no bytes asked for" => ->(near, _) { near.read_nonblock(0, exception: false) },
    "without waiting, a negative number" => ->(near, _) { near.read_nonblock(-1, exception: false) },
    "without waiting, something other than a number" => ->(near, _) { near.read_nonblock("7", exception: false) },
    "without waiting, a String of the caller's" => ->(near, far) {
      far.write("abc" * 50)
      texts = [+"old", +"é", String.new(capacity: 9), +"x" * 30]
      texts.map { |text| [near.read_nonblock(20, text, exception: false).equal?(text), text, text.encoding] } <<
        near.read_nonblock(10, texts[3], exception: false)
    },
    "without waiting, a part of another String" => ->(near, far) {
      far.write("abc")
      [near.read_nonblock(1000, text = (whole = "w" * 400)[100..], exception: false), text, whole]
    },
    "without waiting, a String that is frozen" =>
      ->(near, far) { far.write("abc").then { near.read_nonblock(10, "old", exception: false) } },
    "bytes for a frozen String are not lost" => ->(near, far) {
      far.write("abc")
      begin
        near.read_nonblock(10, "old", exception: false)
      rescue FrozenError => error
        [error.class, near.read_nonblock(10, exception: false)]
      end
    },
    "without waiting, into something else than a String" => ->(near, _) { near.read_nonblock(10, 7, exception: false) },
    "without waiting, bytes read ahead" =>
      ->(near, far) { far.write("a\nbc").then { [near.gets, near.read_nonblock(10, exception: false)] } },
    "without waiting, a closed socket" => ->(near, _) { near.close.then { near.read_nonblock(1, exception: false) } },
    "without waiting, after close_read" =>
      ->(near, _) { near.close_read.then { [near.read_nonblock(1, exception: false)] } },
    "without waiting, where the connection was reset" => ->(near, far) {
      near.write("unread")
      far.close # with bytes that it has not read
      [near.read_nonblock(10, exception: false), near.read_nonblock(10, exception: false)]
    },
    "bytes sent" => ->(near, far) { [near.write("abc"), far.readpartial(10)] },
    "several objects sent" => ->(near, far) { [near.write("a", 1, :b, nil), far.readpartial(10)] },
    "no String" => ->(near, far) { [near.write(12), far.readpartial(10)] },
    "nothing" => ->(near, _) { [near.write, near.write("")] },
    "characters that are converted" =>
      ->(near, far) { near.set_encoding("UTF-16LE").then { [near.write("ab"), far.readpartial(10)] } },
    "line ends that are converted" => ->(near, far) {
      near.set_encoding("UTF-8", crlf_newline: true).then { [near.write("a\n"), far.readpartial(10)] }
    },
    "bytes that are buffered" => ->(near, far) {
      (near.sync = false).then do
        [near.write("ab"), near.sync = true, near.write("c"), near.flush && nil, far.readpartial(10)]
      end
    },
    "a line by puts" => ->(near, far) { near.puts("a", 2).then { far.readpartial(10) } },
    "writing to a closed peer" => ->(near, far) { far.close.then { 3.times { near.write("x") } } },
    "writing to a closed socket" => ->(near, _) { near.close.then { near.write("x") } },
    "writing after close_write" => ->(near, _) { near.close_write.then { near.write("x") } }
  }.freeze

  # In a task, under a subclass of the scheduler and without a loop.
  WAYS = {
    task: ->(work) { Heddle.run { work.call } },
    subclass: ->(work) {
      result = nil
      Thread.new do
        Fiber.set_scheduler(Derived.new)
        Fiber.schedule { result = work.call }
      end.join
      result
    },
    thread: ->(work) { work.call }
  }.freeze

  CONNECTIONS = {
    pair: ->(_) { UNIXSocket.pair },
    tcp: ->(_) {
      server = TCPServer.new("127.0.0.1", 0)
      [TCPSocket.new("127.0.0.1", server.addr[1]), server.accept].tap { server.close }
    },
    path: ->(folder) {
      server = UNIXServer.new("#{folder}/#{rand(1 << 60)}")
      [UNIXSocket.new(server.path), server.accept].tap { server.close }
    }
  }.freeze

  def test_every_call_behaves_as_rubys_own
    Dir.mktmpdir do |folder|
      CASES.to_a.product(CONNECTIONS.to_a).each do |(name, work), (kind, connect)|
        answers = WAYS.transform_values { |way| answer(connect.call(folder), work, way) }
        assert_equal answers[:thread], answers[:task], "#{name}, #{kind}"
        assert_equal answers[:subclass], answers[:task], "#{name}, #{kind}"
      end
    end
  end

  def test_datagrams
    answers = WAYS.transform_values do |way|
      near, far = Array.new(2) { UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) } }
      near.connect(*far.addr.values_at(3, 1))
      far.connect(*near.addr.values_at(3, 1))
      way.call(-> { [near.write("first"), near.write("second"), far.readpartial(3), far.readpartial(100)] })
    ensure
      [near, far].each(&:close)
    end
    assert_equal [5, 6, "fir", "second"], answers[:thread]
    assert_equal [answers[:thread]], answers.values.uniq
  end

  def test_a_read_allocates_only_the_string
    with_pair do |near, far|
      Heddle.run do
        exchange = -> { near.write("ping").then { far.readpartial(100) } }
        3.times { exchange.call }
        before = GC.stat(:total_allocated_objects)
        100.times { exchange.call }
        assert_operator GC.stat(:total_allocated_objects) - before, :<, 150
      end
    end
  end

  # Net::HTTP holds its buffer while it waits, and each such buffer would take a page of memory; io-stream asks for
  # 256 KiB.
  def test_a_read_that_waits_allocates_no_buffer
    skip "this Ruby hides what tells whether a read is an ordinary one" if ruby_at_least?("4.1")
    skip "elsewhere IO's own method reads" unless BasicSocket.method_defined?(:read_nonblock, false)
    require "objspace"
    with_pair do |near, far|
      Heddle.run do
        [16_384, 262_144].each do |size|
          buffer = +""
          assert_equal :wait_readable, near.read_nonblock(size, buffer, exception: false)
          assert_operator ObjectSpace.memsize_of(buffer), :<, 200
          far.write("pong")
          assert_same buffer, near.read_nonblock(size, buffer, exception: false)
          assert_equal "pong", buffer
          assert_operator ObjectSpace.memsize_of(buffer), :<, 200
        end
        far.write(sent = Random.new(1).bytes(100_000))
        assert_equal sent, near.read_nonblock(262_144, exception: false)
      end
    end
  end

  def test_a_write_sends_the_string_as_it_was_at_the_call
    with_pair do |near, far|
      Heddle.run do
        text = "a" * 3_000_000
        writer = Heddle.spawn { near.write(text) }
        assert_equal :waiting, writer.status
        text.replace("b" * 3_000_000)
        got = far.read(3_000_000)
        assert_equal 3_000_000, writer.value
        assert_equal "a" * 3_000_000, got
      end
    end
  end

  def test_a_close_ends_reader_and_writer
    %i[readpartial write].each do |method|
      with_pair do |near, _far|
        Heddle.run do
          waiting = Heddle.spawn { near.public_send(method, (method == :write) ? "x" * 5_000_000 : 10) }
          assert_equal :waiting, waiting.status
          near.close
          error = assert_raises(IOError) { waiting.value }
          assert_match(/closed/, error.message)
        end
      end
    end
  end

  # As in a waiting thread: a socket that was shut for reading has reached its end.
  def test_close_read_under_a_reader_is_the_end_of_the_file
    with_pair do |near, _far|
      Heddle.run do
        waiting = Heddle.spawn { near.readpartial(10) }
        assert_equal :waiting, waiting.status
        near.close_read
        assert_raises(EOFError) { waiting.value }
      end
    end
  end

  # What another fiber puts back during the wait comes before what the kernel has.
  def test_a_byte_that_is_pushed_back_during_a_read
    with_pair do |near, far|
      Heddle.run do
        woken = []
        first = Heddle.spawn { near.wait_readable(10) && woken << :first && near.ungetbyte("z") }
        second = Heddle.spawn { near.readpartial(10).tap { woken << :second } }
        far.write("abc")
        first.value
        assert_equal (woken.first == :first) ? "z" : "abc", second.value
        assert_equal (woken.first == :first) ? "abc" : "z", near.readpartial(10)
      end
    end
  end

  def test_a_programs_own_method_is_called_first
    shouting = Class.new(UNIXSocket) do
      def readpartial(...) = super.upcase

      def write(text) = super(text.reverse)
    end
    near, far = shouting.pair
    Heddle.run { assert_equal "CBA", near.write("abc").then { far.readpartial(10) } }
  ensure
    [near, far].compact.each(&:close)
  end

  def test_a_method_in_front_of_ios_own_is_called
    assert_equal "[:write, :readpartial]\n[:write, :readpartial]\n", assert_child(<<~RUBY)
      require "heddle"
      module Noting
        def write(*) = super.tap { $called << :write }
        def readpartial(*) = super.tap { $called << :readpartial }
      end
      near, far = UNIXSocket.pair
      exchange = -> { $called = []; near.write("a"); far.readpartial(9); p $called }
      $called = []
      Heddle.run { near.write("a"); far.readpartial(9) } # by ours
      IO.prepend(Noting)
      $stdout.singleton_class.define_method(:write) do |*bytes|
        IO.instance_method(:syswrite).bind_call(self, bytes.join)
      end
      Heddle.run(&exchange)
      exchange.call
    RUBY
  end

  def test_a_method_that_sockets_had_before_is_left_alone
    assert_equal "CBA\n", assert_child(<<~RUBY)
      require "socket"
      class BasicSocket
        def readpartial(*) = super.upcase
        def write(text) = super(text.reverse)
      end
      require "heddle"
      near, far = UNIXSocket.pair
      Heddle.run { near.write("abc"); puts far.readpartial(9) }
    RUBY
  end

  # Nor do lines of its backtraces show Heddle.
  def test_without_a_scheduler_only_rubys_own_methods_exist
    assert_equal "[IO, IO]\n[BasicSocket, BasicSocket]\n", assert_child(<<~RUBY)
      require "heddle"
      owners = -> { p %i[readpartial write].map { |name| UDPSocket.instance_method(name).owner } }
      owners.call
      Heddle.run { nil }
      owners.call
    RUBY
  end

  def test_under_gc_stress
    with_pair do |near, far|
      Heddle.run do
        echo = Heddle.spawn { 5.times { far.write(far.readpartial(100)) } }
        GC.stress = true
        answers = Array.new(5) { |number| near.write("number #{number}").then { near.readpartial(100) } }
        GC.stress = false
        echo.value
        assert_equal Array.new(5) { |number| "number #{number}" }, answers
      ensure
        GC.stress = false
      end
    end
  end

  private

  # The result, or the exception's class and text.
  def answer(ends, work, way)
    way.call(lambda do
      work.call(*ends)
    rescue => error
      [error.class, error.message.gsub(%r{/\S+|fd:\d+|#<.*>}, "…")]
    end)
  ensure
    ends.each { |socket| socket.close unless socket.closed? }
  end
end

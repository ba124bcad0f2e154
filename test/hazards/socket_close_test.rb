# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "openssl"

# IO#close of a socket closes its descriptor itself, to keep the GVL: once, whatever happens meanwhile, and never
# another owner's descriptor.
class SocketCloseTest < Minitest::Test
  include LoopHelpers

  def setup
    @other = Thread.new { sleep }
  end

  def teardown
    @other.kill.join
  end

  # A socket takes the number: otherwise a sanitizer's report would take it at once.
  def open?(number)
    File.readlink("/proc/self/fd/#{number}").start_with?("socket:")
  rescue Errno::ENOENT
    false
  end

  def test_the_descriptor_is_closed_and_the_peer_sees_the_end
    with_pair do |one, other|
      number = one.fileno
      assert_nil one.close
      refute open?(number)
      assert_predicate one, :closed?
      assert_nil one.close
      assert_raises(IOError) { one.read(1) }
      assert_within(2, remeasure: 0) { assert_nil other.read(1) }
    end
  end

  # Ruby 3.1 forgets the descriptor, and then checks for interrupts before close(2).
  {alone: "work.call", in_a_task: "Heddle.run { Heddle.spawn(&work).value }"}.each do |where, call|
    define_method("test_no_descriptor_is_left_open_by_a_handler_of_a_signal_that_raises_#{where}") do
      out = assert_child(<<~RUBY, timeout: 60)
        class Interrupted < StandardError; end
        armed = arrived = false
        hits = 0
        trap(:USR1) { (arrived = true) && armed && !(armed = false) && (hits += 1) && raise(Interrupted) }
        victim = Process.pid
        signaller = fork { loop { Process.kill(:USR1, victim) && rand(30).times {} } }
        descriptors = -> { Dir.children("/proc/self/fd").size }
        work = lambda do
          until hits >= 40
            pair = UNIXSocket.pair
            begin
              armed = true
              pair[0].close
              armed = false
            rescue Interrupted
              nil
            end
            pair.each(&:close)
          end
        end
        Thread.pass until arrived
        Heddle.run {} # what the first one keeps
        before = descriptors.call
        #{call}
        GC.start
        puts descriptors.call - before
        Process.kill(:KILL, signaller)
        Process.wait(signaller)
      RUBY
      assert_equal "0\n", out
    end
  end

  def test_servers_and_connections
    server = TCPServer.new("127.0.0.1", 0)
    client = TCPSocket.new("127.0.0.1", server.addr[1])
    peer = server.accept
    udp = UDPSocket.new
    numbers = [server, client, peer, udp].map(&:fileno)
    [server, client, peer, udp].each(&:close)
    assert_empty(numbers.select { |number| open?(number) })
  end

  def test_buffered_bytes_are_sent_first
    with_pair do |one, other|
      one.sync = false
      one.write("last words")
      one.close
      assert_equal "last words", other.read
    end
  end

  def test_a_frozen_socket
    with_pair do |one, _|
      number = one.fileno
      one.freeze.close
      refute open?(number)
    end
  end

  def test_a_socket_that_must_not_close_its_descriptor
    with_pair do |one, other|
      alias_of_it = Socket.for_fd(one.fileno)
      alias_of_it.autoclose = false
      alias_of_it.close
      assert open?(one.fileno)
      one.write("x")
      assert_equal "x", other.read(1)
    end
  end

  def test_a_socket_that_lingers
    server = TCPServer.new("127.0.0.1", 0)
    client = TCPSocket.new("127.0.0.1", server.addr[1])
    client.setsockopt(Socket::Option.linger(true, 1))
    number = client.fileno
    client.write("x")
    client.close
    refute open?(number)
    assert_equal "x", server.accept.read
  ensure
    server&.close
  end

  def test_a_socket_whose_number_was_closed_by_other_code
    with_pair do |one, _|
      IO.for_fd(one.fileno).close
      assert_raises(Errno::EBADF) { one.close }
      assert_predicate one, :closed?
    end
  end

  def test_a_subclass_with_its_own_close
    said = []
    klass = Class.new(UNIXSocket) do
      define_method(:close) do
        said << :closing
        super().tap { said << :closed }
      end
    end
    with_pair do |one, _|
      copy = klass.for_fd(one.dup.tap { |io| io.autoclose = false }.fileno)
      number = copy.fileno
      copy.close
      refute open?(number)
      assert_equal %i[closing closed], said
    end
  end

  def test_a_reading_thread_is_interrupted_first
    with_pair do |one, _|
      number = one.fileno
      reader = Thread.new { assert_raises(IOError) { one.readpartial(1) } }
      wait_until { reader.stop? }
      one.close
      assert_equal "stream closed in another thread", reader.value.message
      refute open?(number)
    end
  end

  def test_an_exception_that_arrives_while_it_is_closed
    100.times do |i|
      one, other = UNIXSocket.pair
      # Ruby 4.0 raises ThreadError ("killed thread") in the reader where the closing thread has ended meanwhile.
      reader = Thread.new { assert_raises(IOError, ThreadError) { one.readpartial(1) } }
      wait_until { reader.stop? }
      closer = Thread.new do
        Thread.handle_interrupt(RuntimeError => :never) do
          Thread.handle_interrupt(RuntimeError => :immediate) { one.close }
        rescue RuntimeError
          one.close # as the test says, it may have come before
        end
      end
      Thread.pass if i.odd?
      closer.raise("in the middle")
      [closer, reader].each { |thread| thread.report_on_exception = false }
      begin
        closer.join
      rescue RuntimeError
        one.close # it came before or after all of it
      end
      reader.join
      assert_nil other.read_nonblock(1, exception: false), "the socket is still open"
    ensure
      other&.close
    end
  end

  # Threads open and close as fast as they can, so that another file gets each number at once: one close too many
  # would hit it.
  def test_no_other_owners_descriptor_is_closed
    threads = Array.new(8) do
      Thread.new do
        150.times do
          one, other = UNIXSocket.pair
          one.write("x")
          assert_equal "x", other.read(1)
          [one, other].shuffle.each(&:close)
        end
        :done
      end
    end
    assert_equal [:done] * 8, threads.map(&:value)
  end

  def test_as_many_are_open_afterwards_as_before
    GC.start # descriptors of earlier tests must not be closed in the middle
    before = descriptor_count
    100.times { UNIXSocket.pair.each(&:close) }
    assert_equal before, descriptor_count
  end

  def test_in_a_task_and_in_a_thread_beside_a_loop
    Heddle.run do
      with_pair do |one, other|
        waiter = Heddle.spawn { assert_raises(IOError) { other.readpartial(1) } }
        number = other.fileno
        Thread.new { other.close }.join
        assert waiter.wait(2), "the reader still waits"
        refute open?(number)
        number = one.fileno
        one.close
        refute open?(number)
      end
    end
  end
end

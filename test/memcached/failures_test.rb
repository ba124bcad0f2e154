# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"

# Failures outside of the wire: servers that answer with errors, or not at all, exhausted pools, closed clients.
class MemcachedFailuresTest < Minitest::Test
  include MemcachedHelpers

  hard_deadline 60

  class Interruption < StandardError; end

  # Answers each line other than "version" by one text, or never (nil).
  def scripted(answer)
    listener = TCPServer.new("127.0.0.1", 0)
    threads = Queue.new
    asked = Queue.new
    threads << Thread.new do
      loop do
        socket = listener.accept
        threads << Thread.new do
          while (line = socket.gets)
            next socket.write("VERSION 1.6.18\r\n") if line == "version\r\n"

            asked << line
            socket.write(answer) if answer
          end
        rescue IOError, SystemCallError
          nil
        ensure
          socket.close
        end
      end
    rescue IOError, SystemCallError
      nil
    end
    (@listeners ||= []) << [listener, threads]
    ["127.0.0.1:#{listener.addr[1]}", asked]
  end

  def teardown
    super
    @listeners&.each do |listener, threads|
      listener.close
      threads.pop.kill.join until threads.empty?
    end
  end

  def test_an_exception_while_a_fetch_gives_its_turn_back
    cache = client
    cache.define_singleton_method(:remove) { |*| raise Interruption }
    assert_raises(Interruption) { cache.fetch("interrupted") { break } }
    cache.define_singleton_method(:remove) { |*| raise Errno::ECONNRESET }
    assert_nil cache.fetch("lost") { break }
  end

  # An error that leaves the state of the exchange unknown ends all of it, and is no answer.
  def test_an_error_ends_a_batch
    address, = scripted("CLIENT_ERROR bad data chunk\r\n")
    cache = client_of(address)
    assert_raises(Heddle::Memcached::ClientError) { cache.pipelined { |batch| batch.get("a") && batch.set("b", 1) } }
    assert_raises(Heddle::Memcached::ClientError) { cache.pipelined { |batch| 3.times { |i| batch.set("b#{i}", 1) } } }
    assert_raises(Heddle::Memcached::ClientError) { cache.get_multi("a", "b") }
    assert_raises(Heddle::Memcached::ClientError) { cache.set_multi({"a" => 1}) }
    assert_raises(Heddle::Memcached::ClientError) { cache.delete_multi("a", "b") }
    assert_equal [0, 0], connections(cache)
  end

  # A caller that waits for a connection in vain has learnt nothing about the server.
  def test_an_exhausted_pool_is_not_a_dead_server
    address, asked = scripted(nil)
    cache = client_of(address, pool: 1, failures: 1)
    holder = Thread.new { cache.get("key") }
    holder.report_on_exception = false
    asked.pop
    3.times do
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { cache.get("key") } }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { cache.get_multi("key", "other") } }
    end
    server = cache.instance_variable_get(:@servers).first
    assert_nil server.error
    assert_predicate server, :usable?
    assert_equal [1, 0], connections(cache)
  ensure
    holder&.kill&.join
  end

  def test_a_wait_for_a_connection_has_its_own_limit
    address, asked = scripted(nil)
    cache = client_of(address, pool: 1, pool_timeout: 0.05, failures: 1)
    holder = Thread.new { cache.get("key") }
    holder.report_on_exception = false
    asked.pop
    %i[thread fiber async].each do |wait|
      started = monotonic
      error = assert_raises(Heddle::DeadlineExceeded) { in_mode(wait) { cache.get("key") } }
      assert_match(/no connection to #{address} became free in time: 1 may be open/, error.message)
      assert_raises(Heddle::DeadlineExceeded) { in_mode(wait) { cache.get_multi("key", "other") } }
      assert_operator monotonic - started, :<, stretched(5), "the operation has ten seconds"
    end
    server = cache.instance_variable_get(:@servers).first
    assert_nil server.error
    assert_equal [1, 0], connections(cache)
  ensure
    holder&.kill&.join
  end

  # Threads, fibers and fibers of another scheduler wait in one line, and each is woken in its own way.
  def test_all_kinds_of_waiters_share_a_pool
    require "async"
    cache = client(pool: 1)
    cache.set("key", 1)
    work = -> { 20.times.map { cache.get("key") }.uniq }
    threads = Array.new(3) { Thread.new(&work) }
    fibers = Thread.new { Heddle.run { Array.new(3) { Heddle.spawn(&work) }.map(&:value) } }
    async = Thread.new { Sync { Array.new(3) { Async { work.call } }.map(&:wait) } }
    assert_equal [[1]] * 9, threads.map(&:value) + fibers.value + async.value
    assert_equal [1, 1], connections(cache)
  end

  def test_a_client_that_is_closed
    cache = client
    cache.set("key", 1)
    cache.close
    2.times do
      [-> { cache.get("key") }, -> { cache.set("key", 1) }, -> { cache.get_multi("key") },
        -> { cache.version }].each do |work|
        error = assert_raises(IOError, &work)
        assert_equal "the client is closed: make a new one", error.message
      end
    end
  end

  # An error while one connection is closed does not keep the others from being counted off.
  def test_an_interruption_while_connections_are_closed
    addresses = Array.new(2) { scripted(nil).first }
    cache = client_of(*addresses, failures: 100)
    cache.send(:time_limit=, 0.2)
    keys = Array.new(40) { |i| "key #{i}" }
    assert_equal 2, keys.map { |key| cache.send(:server_for, key).name }.uniq.size
    peers = addresses.map { |address| /#{address}/ }
    interrupting = Module.new do
      define_method(:poison) do
        super()
        raise Interruption
      end
    end
    asking = Thread.new { cache.get_multi(keys) }
    asking.report_on_exception = false
    wait_until { connections(cache).first == 2 }
    ObjectSpace.each_object(Heddle::Stream) do |stream|
      stream.extend(interrupting) if !stream.closed? && peers.any? { |peer| stream.inspect.match?(peer) }
    end
    assert_raises(Interruption) { asking.value }
    assert_equal [0, 0], connections(cache)
  end

  # A server that is down does not keep the others from being asked.
  def test_every_server_is_asked
    address, = scripted("OK\r\n")
    gone = "127.0.0.1:#{Servers.free_port}"
    last, asked = scripted("OK\r\n")
    cache = client_of(gone, address, gone, last)
    assert_raises(Errno::ECONNREFUSED) { cache.flush_all }
    refute_predicate asked, :empty?
    assert_equal "flush_all\r\n", asked.pop
    dalli = Heddle::Memcached::DalliCompatible.new([gone, last])
    assert_equal({gone => nil}, dalli.version.slice(gone))
    assert_raises(Heddle::Memcached::DalliCompatible::RingError) { Heddle::Memcached::DalliCompatible.new(gone).alive! }
  end

  # What each server answers is asked for in turn; a cancel ends that.
  def test_a_cancel_is_no_failure_of_a_server
    silent = TCPServer.new("127.0.0.1", 0)
    gone = "127.0.0.1:#{Servers.free_port}"
    servers = [gone, "127.0.0.1:#{silent.addr[1]}"]
    [Heddle::Memcached, Heddle::Memcached::DalliCompatible].each do |client|
      Heddle.run do
        task = Heddle.spawn { client.new(servers).version }
        task.cancel.wait
        assert_equal [:cancelled, nil], [task.status, task.error], client
      end
    end
  ensure
    silent&.close
  end

  def test_another_protocol
    [["HTTP/1.1 400 Bad Request\r\n\r\n", Heddle::Memcached::ProtocolError],
      ["ERROR\r\n", Heddle::Memcached::ClientError],
      ["SERVER_ERROR out of memory\r\n", Heddle::Memcached::ServerError]].each do |answer, error|
      cache = client_of(scripted(answer).first, failures: 100)
      assert_raises(error, answer) { cache.get("key") }
      assert_raises(error, answer) { cache.get_multi("key") } unless answer.start_with?("SERVER")
    end
  end
end

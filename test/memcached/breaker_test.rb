# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"

# Failures that count against a server: its own silence, refusals, resets and garbage. What a caller does to its own
# operation (a deadline, a cancel, a kill, an exception raised in it) must not keep others from the server.
class MemcachedBreakerTest < Minitest::Test
  include MemcachedHelpers

  hard_deadline 60

  class Interruption < StandardError; end

  # Async's scheduler calls IO#timeout, which Ruby has since 3.2.
  WAITS = [:thread, :fiber, (:async if IO.method_defined?(:timeout))].compact.freeze

  # Accepts connections and answers "version"; `silent`: nothing else. Yields the listener's address and the requests.
  def with_server(silent: -> { true })
    listener = TCPServer.new("127.0.0.1", 0)
    asked = Queue.new
    threads = [Thread.new { accept(listener, silent, asked, threads) }]
    yield "127.0.0.1:#{listener.addr[1]}", asked
  ensure
    listener&.close
    threads&.each { |thread| thread.kill.join }
  end

  def accept(listener, silent, asked, threads)
    while (socket = listener.accept)
      threads << Thread.new(socket) { |peer| serve(peer, silent, asked) }
    end
  rescue IOError, SystemCallError
    nil
  end

  def serve(socket, silent, asked)
    while (line = socket.gets)
      next socket.write("VERSION 1.6.18\r\n") if line == "version\r\n"

      asked << line
      next if silent.call

      opaque = line[/ (O\d+)/, 1]
      socket.write((line == "mn\r\n") ? "MN\r\n" : "EN#{" #{opaque}" if opaque}\r\n") unless line.include?(" q ")
    end
  rescue IOError, SystemCallError
    nil
  ensure
    socket.close
  end

  def server_of(cache) = cache.instance_variable_get(:@servers).first

  def assert_untroubled(cache)
    assert_nil server_of(cache).error
    assert_predicate server_of(cache), :usable?
  end

  # Ends an operation that waits for its reply.
  def interrupted(asked, work)
    asked.clear
    thread = Thread.new(&work)
    thread.report_on_exception = false
    wait_until { !asked.empty? || !thread.alive? }
    yield thread
    thread.join
  rescue Interruption, IOError, SystemCallError, Timeout::Error => error
    error
  end

  OPERATIONS = {get: ->(cache) { cache.get("key") }, set: ->(cache) { cache.set("key", 1) },
                get_multi: ->(cache) { cache.get_multi("key", "other") }, add: ->(cache) { cache.add("key", 1) },
                pipelined: ->(cache) { cache.pipelined { |batch| batch.get("key") } }}.freeze

  OPERATIONS.each do |name, operation|
    define_method(:"test_a_deadline_of_the_caller_#{name}") do
      with_server do |address|
        WAITS.each do |wait|
          cache = client_of(address, failures: 1)
          in_mode(wait) do
            2.times { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.03) { operation.call(cache) } } }
            assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(1e-6) { operation.call(cache) } }
            assert_raises(Timeout::Error) { Timeout.timeout(0.03) { operation.call(cache) } }
            error = assert_raises(Errno::ETIMEDOUT) {
              Timeout.timeout(0.25, Errno::ETIMEDOUT, "mine") { operation.call(cache) }
            }
            assert_match(/mine/, error.message)
          end
          assert_untroubled(cache)
          assert_equal [0, 0], connections(cache)
        end
      end
    end

    # An error of a connection's classes that was raised in the thread is neither swallowed nor blamed on the server.
    define_method(:"test_an_exception_raised_in_a_thread_#{name}") do
      with_server do |address, asked|
        cache = client_of(address, failures: 1)
        [Interruption, IOError, Errno::ECONNRESET, Timeout::Error].each do |error|
          ended = interrupted(asked, -> { operation.call(cache) }) { |thread| thread.raise(error, "from outside") }
          assert_instance_of error, ended
          assert_match(/from outside/, ended.message)
          assert_untroubled(cache)
        end
        interrupted(asked, -> { operation.call(cache) }, &:kill)
        assert_untroubled(cache)
        assert_equal [0, 0], connections(cache)
      end
    end
  end

  def test_a_cancelled_task
    with_server do |address, asked|
      cache = client_of(address, failures: 1)
      Heddle.run do
        task = Heddle.spawn { cache.get("key") }
        wait_until { !asked.empty? }
        task.cancel
        assert_raises(Heddle::TaskCancelled) { task.value }
      end
      assert_untroubled(cache)
    end
  end

  # A connect that the caller's deadline ends; the queue of connections is full, so the server does not answer.
  def test_a_connect_ended_by_the_callers_deadline
    with_a_full_listener do |address|
      %i[thread fiber].each do |wait|
        cache = client_of(address, failures: 1)
        in_mode(wait) { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { cache.get("key") } } }
        assert_untroubled(cache)
      end
    end
  end

  def test_a_connect_that_takes_longer_than_its_own_time
    with_a_full_listener do |address|
      %i[thread fiber].each do |wait|
        cache = client_of(address, failures: 1, connect_timeout: 0.05)
        in_mode(wait) { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(5) { cache.get("key") } } }
        assert_instance_of Heddle::DeadlineExceeded, server_of(cache).error
        refute_predicate server_of(cache), :usable?
      end
    end
  end

  def with_a_full_listener
    listener = Socket.new(:INET, :STREAM)
    listener.bind(Addrinfo.tcp("127.0.0.1", 0))
    listener.listen(0)
    port = listener.local_address.ip_port
    fillers = []
    loop do
      filler = Socket.new(:INET, :STREAM)
      fillers << filler
      if filler.connect_nonblock(Addrinfo.tcp("127.0.0.1", port), exception: false) == :wait_writable &&
          !filler.wait_writable(0.1)
        break
      end
    end
    yield "127.0.0.1:#{port}"
  ensure
    listener&.close
    fillers&.each(&:close)
  end

  # The other side: the server's own failures still count.
  OPERATIONS.each do |name, operation|
    define_method(:"test_silence_of_the_server_counts_#{name}") do
      with_server do |address|
        WAITS.each do |wait|
          cache = client_of(address, failures: 1)
          cache.send(:time_limit=, 0.05)
          in_mode(wait) { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(5) { operation.call(cache) } } }
          assert_instance_of Heddle::DeadlineExceeded, server_of(cache).error
          assert_raises(Heddle::Memcached::NoServerAvailable) { operation.call(cache) }
        end
      end
    end
  end

  def test_silence_before_the_first_answer_counts
    listener = TCPServer.new("127.0.0.1", 0)
    address = "127.0.0.1:#{listener.addr[1]}"
    WAITS.each do |wait|
      [{connect_timeout: 0.05}, {}].each do |options|
        cache = client_of(address, failures: 1, **options)
        cache.send(:time_limit=, 0.1) if options.empty?
        in_mode(wait) { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(5) { cache.get("key") } } }
        assert_instance_of Heddle::DeadlineExceeded, server_of(cache).error
      end
      other = client_of(address, failures: 1)
      in_mode(wait) { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { other.get("key") } } }
      assert_untroubled(other)
    end
  ensure
    listener&.close
  end

  def test_a_refusal_counts
    cache = client_of("127.0.0.1:#{Servers.free_port}", failures: 1)
    assert_raises(Heddle::Memcached::NoServerAvailable) { cache.get("key") }
    assert_instance_of Errno::ECONNREFUSED, server_of(cache).error
  end

  # A lack of descriptors in this process proves nothing about the server, whose other connections continue.
  def test_a_process_without_descriptors
    cache = client(failures: 1)
    cache.set("key", 1)
    idle = connections(cache)
    server = server_of(cache)
    failing = Module.new { def connect(*) = raise(Errno::EMFILE, "no descriptor is left") }
    server.extend(failing)
    server.disconnect
    assert_raises(Errno::EMFILE) { cache.get("key") }
    assert_untroubled(cache)
    assert_equal [1, 1], idle
  end

  # The rule of one caller says nothing about the server.
  {
    get: ->(cache) { cache.get("key") }, set: ->(cache) { cache.set("key", 2) },
    get_multi: ->(cache) { cache.get_multi("key", "other") }, set_multi: ->(cache) { cache.set_multi({"key" => 2}) },
    fetch: ->(cache) { cache.fetch("key") { 2 } }, delete: ->(cache) { cache.delete("key") }
  }.each do |name, operation|
    define_method("test_a_connect_that_a_filter_refuses_by_#{name}") do
      cache = client
      cache.set("key", 1)
      cache.disconnect
      assert_raises(Heddle::ConnectRefused) do
        Heddle.connect_filter(Heddle::ConnectFilter::PUBLIC) { operation.call(cache) }
      end
      assert_untroubled(cache)
      assert_equal 1, cache.get("key")
    end
  end

  # The one operation that probes whether a server is up again belongs to a caller with less time: the next one probes
  # at once.
  def test_a_caller_that_abandons_the_probe
    silent = true
    with_server(silent: -> { silent }) do |address, asked|
      cache = client_of(address, failures: 1, retry_after: 0.05, max_retry_after: 1000)
      cache.send(:time_limit=, 0.05)
      assert_raises(Heddle::DeadlineExceeded) { cache.get("key") }
      cache.send(:time_limit=, 10)
      server = server_of(cache)
      server.instance_variable_set(:@pause, 1000)
      wait_until { monotonic > server.instance_variable_get(:@down_until) }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { cache.get("key") } }
      interrupted(asked, -> { cache.get("key") }, &:kill)
      silent = false
      assert_nil cache.get("key")
      assert_untroubled(cache)
    end
  end

  # Operations that were under way together count as one failure of the server: its pause is not doubled for each of
  # them.
  def test_failures_at_once_are_one_pause
    with_server do |address|
      cache = client_of(address, failures: 2, retry_after: 1, max_retry_after: 1000)
      cache.send(:time_limit=, 0.2)
      Array.new(8) { Thread.new { cache.get("key") rescue $! } }.each(&:join) # standard:disable Style/RescueModifier
      assert_equal 1, server_of(cache).instance_variable_get(:@pause)
    end
  end
end

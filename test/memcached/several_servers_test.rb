# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"

# Three servers, one of which goes and comes back; and one that goes and comes back behind a pool's connections.
class MemcachedSeveralServersTest < Minitest::Test
  include MemcachedHelpers

  hard_deadline 90

  KEYS = Array.new(300) { |i| "key #{i}" }.freeze

  def start(count)
    @servers = Array.new(count) { Servers::Memcached.new.start }
  end

  def teardown
    super
    @servers&.each(&:stop)
  end

  def names
    @servers.map { |server| "#{server.host}:#{server.port}" }
  end

  def restart(index)
    port = @servers[index].port
    @servers[index].stop
    @servers[index] = Servers::Memcached.new(port: port).start
  end

  def owned_by(cache, index)
    KEYS.select { |key| cache.send(:server_for, key).name == names[index] }
  end

  def test_keys_are_spread_over_servers_that_are_asked_at_once
    start(3)
    cache = client_of(*names)
    cache.set_multi(KEYS.to_h { |key| [key, key.upcase] }, ttl: 100)
    assert_equal KEYS.to_h { |key| [key, key.upcase] }, cache.get_multi(KEYS)
    @servers.each_index do |index|
      alone = client_of(names[index])
      assert_equal owned_by(cache, index), alone.get_multi(KEYS).keys
    end
    assert_equal 3, cache.version.size
    assert_equal KEYS.size, cache.delete_multi(KEYS)
    assert_equal({}, cache.get_multi(KEYS))
    assert_at_rest(cache)
  end

  # Only the dead server's keys are lost, each operation ends in its time, and the server is used again once it is
  # back.
  %i[thread fiber].each do |wait|
    define_method(:"test_one_is_killed_and_restarted_under_load_of_#{wait}s") do
      start(3)
      cache = client_of(*names, timeout: 2, retry_after: 0.1, max_retry_after: 0.2)
      cache.set_multi(KEYS.to_h { |key| [key, key] })
      theirs = KEYS - owned_by(cache, 1)
      over = false
      slowest = 0
      wrong = Queue.new
      rounds = Queue.new
      work = lambda do
        until over
          started = monotonic
          begin
            key = KEYS.sample
            value = cache.get(key)
            fine = value == key || (value.nil? && !theirs.include?(key))
            wrong << [key, value] unless fine
            found = cache.get_multi(KEYS.sample(20))
            wrong << found unless found.all? { |k, v| k == v }
          rescue IOError, SystemCallError, Heddle::DeadlineExceeded => error
            rounds << error
          end
          slowest = [slowest, monotonic - started].max
          rounds << nil
          sleep 0.005 # eight threads that never release the GVL would leave no time to start a server
        end
      end
      scenario = lambda do
        done = rounds.size + 50
        wait_until { rounds.size > done }
        @servers[1].stop
        done = rounds.size + 100
        wait_until { rounds.size > done }
        @servers[1] = Servers::Memcached.new(port: @servers[1].port).start
        wait_until {
          begin
            cache.instance_variable_get(:@servers).all?(&:usable?) && cache.version.size == 3
          rescue
            false
          end
        }
        over = true
      end
      if wait == :fiber
        Heddle.run do
          workers = Array.new(8) { Heddle.spawn(&work) }
          scenario.call
          workers.each(&:wait)
        end
      else
        workers = Array.new(8) { Thread.new(&work) }
        scenario.call
        workers.each(&:join)
      end
      assert_predicate wrong, :empty?, -> { wrong.pop.inspect }
      assert_operator slowest, :<, stretched(5)
      assert_equal theirs, cache.get_multi(theirs).keys, "keys of servers that were never down"
      assert_at_rest(cache)
    end
  end

  # The pool's connections are dead; the next caller must not notice.
  def test_a_restart_behind_idle_connections
    start(1)
    cache = client_of(*names)
    Array.new(8) { Thread.new { 20.times { cache.set("key", 1) } } }.each(&:join)
    restart(0)
    assert_nil cache.get("key")
    assert_equal true, cache.set("key", 1)
    restart(0)
    assert_equal 1, cache.incr("count", 1, initial: 1), "a call that must not run twice is not resent"
    restart(0)
    assert_equal({}, cache.get_multi(KEYS))
    assert_at_rest(cache)
  end

  def test_without_failover
    start(2)
    cache = client_of(*names, failover: false, failures: 1, retry_after: 60, timeout: 2)
    cache.set_multi(KEYS.to_h { |key| [key, 1] })
    mine, gone = owned_by(cache, 0).first, owned_by(cache, 1).first
    @servers[1].stop
    2.times { assert_raises(Heddle::Memcached::NoServerAvailable) { cache.get(gone) } }
    error = assert_raises(Heddle::Memcached::NoServerAvailable) { cache.get_multi(mine, gone) }
    assert_includes [Errno::ECONNREFUSED, Errno::ECONNRESET, Errno::EPIPE, Heddle::UnexpectedEnd], error.cause.class
    assert_equal 1, cache.get(mine)
  end

  def test_an_exhausted_pool
    start(1)
    cache = client_of(*names, pool: 2, timeout: 5)
    values = Heddle.run {
      Array.new(50) { |i| Heddle.spawn { cache.set("key #{i}", i) && cache.get("key #{i}") } }.map(&:value)
    }
    assert_equal Array.new(50) { |i| i }, values
    assert_equal [2, 2], connections(cache)
    threads = Array.new(10) { |i| Thread.new { 50.times.map { cache.get("key #{i}") }.uniq } }
    assert_equal Array.new(10) { |i| [i] }, threads.map(&:value)
    assert_equal [2, 2], connections(cache)
  end

  def test_a_child_of_fork_has_its_own_connections
    start(1)
    cache = client_of(*names)
    cache.set("key", "parent")
    reader, writer = IO.pipe
    pid = fork do
      writer.write(Marshal.dump([cache.get("key"), connections(cache)]))
      writer.close
      exit!
    end
    writer.close
    assert_equal ["parent", [1, 1]], Marshal.load(reader.read)
    Process.wait(pid)
    assert_equal "parent", cache.get("key")
    assert_equal [1, 1], connections(cache)
  ensure
    reader&.close
  end

  def test_a_password
    users = {"heddle" => "s3cret"}
    server = Servers::Memcached.new(users: users).start
    @servers = [server]
    address = "#{server.host}:#{server.port}"
    cache = client_of(address, username: "heddle", password: "s3cret")
    cache.set("key", 1)
    assert_equal 1, cache.get("key")
    assert_raises(Heddle::Memcached::AuthenticationFailed) do
      client_of(address, username: "heddle", password: "wrong").get("key")
    end
    assert_raises(Heddle::Memcached::AuthenticationFailed) { client_of(address).get("key") }
    assert_equal 1, client_of("memcached://heddle:s3cret@#{address}").get("key")
  end

  # A URL without a host was taken for one of this machine, or of none.
  def test_a_url_without_a_host
    %w[memcached:// memcached://:11211 memcached://me:secret@ memcached:///path].each do |url|
      assert_match(/is not the address of a server/,
        assert_raises(ArgumentError, url) { Heddle::Memcached.new(url) }.message)
    end
  end
end

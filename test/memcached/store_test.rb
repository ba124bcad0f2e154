# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"
require "minitest/mock"
require "stringio"

# ActiveSupport's documented behaviour of cache stores.
class MemcachedStoreTest < Minitest::Test
  include MemcachedHelpers

  hard_deadline 60

  def setup
    super
    require "logger"
    require "active_support"
    require "active_support/cache/heddle_store"
    require "active_support/notifications"
  end

  def store(**options)
    server = real_server
    ActiveSupport::Cache.lookup_store(:heddle_store, "#{server.host}:#{server.port}",
      {namespace: "#{name}#{rand(1 << 30)}", timeout: 10, **options})
  end

  def test_read_write_exist_delete
    cache = store
    assert_nil cache.read("key")
    assert_equal true, cache.write("key", "value")
    assert_equal "value", cache.read("key")
    assert_equal true, cache.exist?("key")
    assert_equal true, cache.delete("key")
    assert_equal false, cache.exist?("key")
    [nil, false, {a: [1]}, "ä", 1.5, Time.at(0), "x" * 100_000].each do |value|
      cache.write("key", value)
      assert_equal [value], [cache.read("key")]
      assert_equal true, cache.exist?("key")
    end
    cache.write(%w[a b], 1)
    assert_equal 1, cache.read("a/b")
    cache.write("line\r\nend " + "ю" * 300, 2)
    assert_equal 2, cache.read("line\r\nend " + "ю" * 300)
  end

  # If it were one, the cancelled task would go on.
  def test_a_cancelled_read_is_no_miss
    silent = TCPServer.new("127.0.0.1", 0)
    cache = ActiveSupport::Cache.lookup_store(:heddle_store, "127.0.0.1:#{silent.addr[1]}", timeout: 10)
    Heddle.run do
      task = Heddle.spawn { cache.read("key") }
      task.cancel.wait
      assert_equal :cancelled, task.status
    end
  ensure
    silent&.close
  end

  def test_fetch
    cache = store
    assert_equal 1, cache.fetch("key") { 1 }
    assert_equal 1, cache.fetch("key") { flunk }
    assert_equal 2, cache.fetch("key", force: true) { 2 }
    assert_nil cache.fetch("nil", skip_nil: true) { nil }
    assert_equal false, cache.exist?("nil")
    assert_nil cache.fetch("nil") { nil }
    assert_nil cache.fetch("nil") { flunk }
  end

  def test_multi
    cache = store
    assert_equal({}, cache.read_multi("a", "b"))
    cache.write_multi({"a" => 1, "b" => {c: 2}}, expires_in: 100)
    assert_equal({"a" => 1, "b" => {c: 2}}, cache.read_multi("a", "b", "none"))
    assert_equal({"a" => 1, "new" => "made new"}, cache.fetch_multi("a", "new") { |key| "made #{key}" })
    assert_equal "made new", cache.read("new")
    assert_equal 2, cache.delete_multi(%w[a b none])
    assert_equal({}, cache.read_multi("a", "b"))
  end

  # Answers nothing until it has seen as many values as it waits for.
  def waiting_server(values)
    listener = TCPServer.new("127.0.0.1", 0)
    thread = Thread.new do
      socket = listener.accept
      answers = []
      while (line = socket.gets)
        next socket.write("VERSION 1.6.18\r\n") if line == "version\r\n"

        if line.start_with?("ms ")
          socket.gets
          values -= 1
          answers << "HD#{line[/ O\d+/]}\r\n" unless line.match?(/ q\b/)
        else
          answers << "MN\r\n"
        end
        socket.write(answers.shift) until values > 0 || answers.empty?
      end
    rescue IOError, SystemCallError
      nil
    end
    yield "127.0.0.1:#{listener.addr[1]}"
  ensure
    listener&.close
    thread&.kill&.join
  end

  def test_write_multi_sends_all_of_them_at_once
    waiting_server(3) do |address|
      cache = ActiveSupport::Cache.lookup_store(:heddle_store, address, timeout: 5, failures: 100)
      entries = {"a" => 1, "b" => 2, "c" => 3}
      errors = StringIO.new
      before = cache.logger
      cache.logger = Logger.new(errors, level: :error)
      assert cache.write_multi(entries, expires_in: 100)
      assert_empty errors.string
    ensure
      cache.logger = before
    end
  end

  def test_write_multi_stores_what_write_stores
    cache = store(max_value_bytes: 4000)
    values = {"nil" => nil, "text" => "ä", "large" => Random.bytes(5000), "hash" => {a: 1}}
    cache.write_multi(values, expires_in: 100)
    assert_equal values.except("large"), cache.read_multi(*values.keys),
      "what is too large is not stored, the others are"
    cache.write_multi({"raw" => 7, "ю" => "ä\r\n"}, raw: true)
    assert_equal 8, cache.increment("raw")
    assert_equal "ä\r\n".b, cache.read("ю", raw: true).b
    cache.write_multi({"raw" => 1, "new" => 2}, raw: true, unless_exist: true)
    assert_equal %w[8 2], [cache.read("raw", raw: true), cache.read("new", raw: true)]
    cache.write_multi({"short" => 1}, expires_in: 0.05)
    wait_until { cache.read("short").nil? }
    cache.write_multi({"old" => 1}, expires_in: 0.05, race_condition_ttl: 10)
    sleep 0.06
    assert_equal 2, cache.fetch("old", race_condition_ttl: 10, expires_in: 10) {
      cache.read("old") ? 2 : flunk("the others have nothing meanwhile")
    }
    assert_equal({}, cache.write_multi({}))
  end

  def test_the_local_cache_has_the_values_of_write_multi
    cache = store
    cache.with_local_cache do
      cache.write_multi({"a" => 1, "b" => 2})
      cache.instance_variable_get(:@data).delete_multi(%w[a b].map { |key| "#{cache.options[:namespace]}:#{key}" })
      assert_equal({"a" => 1, "b" => 2}, cache.read_multi("a", "b"))
    end
    assert_nil cache.read("a")
    gone = ActiveSupport::Cache.lookup_store(:heddle_store, "127.0.0.1:#{Servers.free_port}", timeout: 2)
    gone.with_local_cache do
      gone.write_multi({"a" => 1, "b" => 2})
      assert_nil gone.read("a"), "it was not stored"
    end
  end

  def test_pools_as_rails_writes_them
    {{} => [16, nil], {pool: true} => [16, nil], {pool: nil} => [16, nil], {pool: false} => [1, nil],
     {pool: 7} => [7, nil],
     {pool: {size: 3, timeout: 2}} => [3, 2.0], {pool: {size: "3", timeout: "0.5"}} => [3, 0.5],
     {pool: {timeout: 2}} => [16, 2.0],
     {pool: {}} => [16, nil], {pool_size: "4", pool_timeout: "1"} => [4, 1.0]}.each do |options, (size, seconds)|
      made = nil
      create = Heddle::Memcached.method(:new)
      Heddle::Memcached.stub(:new, ->(*servers, **given) { create.call(*servers, **(made = given)) }) do
        store(**options)
      end
      assert_equal [size, seconds], [made.fetch(:pool, Heddle::Memcached::POOL), made[:pool_timeout]], "of #{options}"
    end
    assert_raises(ArgumentError) { store(pool: {connections: 1}) }
    assert_raises(ArgumentError) { store(pool: {size: "many"}) }
    cache = store(pool: {size: 2, timeout: 5})
    threads = Array.new(8) { |i| Thread.new { cache.write("key #{i}", i) && cache.read("key #{i}") } }
    assert_equal [*0..7], threads.map(&:value)
    assert_operator cache.instance_variable_get(:@data).instance_variable_get(:@servers).sum(&:open_connections), :<=, 2
  end

  def test_times_to_live
    cache = store
    cache.write("key", 1, expires_in: 100)
    assert_equal 1, cache.read("key")
    cache.write("key", 1, expires_in: 0.05)
    wait_until { cache.read("key").nil? }
    cache.write("key", 1, expires_at: Time.now + 100)
    assert_equal 1, cache.read("key")
    cache.write("old", "old", expires_in: 0.05, race_condition_ttl: 10)
    sleep 0.06
    assert_equal "new", cache.fetch("old", race_condition_ttl: 10, expires_in: 10) {
      cache.read("old") ? "new" : flunk("the others have nothing meanwhile")
    }
  end

  def test_counting_raw_and_versions
    cache = store
    assert_equal 1, cache.increment("count")
    assert_equal 4, cache.increment("count", 3)
    assert_equal 2, cache.decrement("count", 2)
    cache.write("raw", "7", raw: true)
    assert_equal "7", cache.read("raw", raw: true)
    assert_equal 8, cache.increment("raw")
    assert_equal({"raw" => "8"}, cache.read_multi("raw", raw: true))
    cache.write("versioned", 1, version: 1)
    assert_equal 1, cache.read("versioned", version: 1)
    assert_nil cache.read("versioned", version: 2)
    cache.write("once", 1, unless_exist: true)
    assert_equal false, cache.write("once", 2, unless_exist: true)
    assert_equal 1, cache.read("once")
  end

  def test_the_local_cache_and_events
    cache = store
    cache.write("key", 1)
    events = []
    ActiveSupport::Notifications.subscribed(->(*event) { events << [event.first, event.last[:hit]] }, /cache_/) do
      cache.with_local_cache do
        assert_equal 1, cache.read("key")
        cache.instance_variable_get(:@data).delete("#{cache.options[:namespace]}:key")
        assert_equal 1, cache.read("key")
      end
      assert_nil cache.read("key")
    end
    assert_equal [["cache_read.active_support", true], ["cache_read.active_support", true],
      ["cache_read.active_support", false]], events
  end

  def test_a_server_that_is_gone_is_a_miss
    port = Servers.free_port
    cache = ActiveSupport::Cache.lookup_store(:heddle_store, "127.0.0.1:#{port}", timeout: 2)
    assert_nil cache.read("key")
    assert_nil cache.write("key", 1)
    assert_equal 2, cache.fetch("key") { 2 }
    assert_equal({}, cache.read_multi("a"))
    assert_equal false, cache.delete("key")
    assert_nil cache.increment("key")
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"
require "logger"
require "stringio"

# Rails' own store on dalli; the same on Heddle instead of dalli; and Heddle's own store: the same calls, the same
# answers.
class MemcachedRailsStoresTest < Minitest::Test
  include MemcachedHelpers

  hard_deadline 60

  def setup
    super
    require "active_support"
    require "active_support/cache"
    require "dalli"
    require "active_support/cache/mem_cache_store"
    require "active_support/cache/heddle_store"
    require "active_support/cache/redis_cache_store"
    ActiveSupport::Cache.format_version = 7.1 if ActiveSupport.version < "7.2" # as Rails sets it
    Dalli.logger = Logger.new(nil)
    @log = StringIO.new
  end

  # As a program that keeps Rails' store: one method.
  def self.on_heddle
    return const_get(:OnHeddle) if const_defined?(:OnHeddle, false)

    const_set(:OnHeddle, Class.new(ActiveSupport::Cache::MemCacheStore) do
      def self.build_mem_cache(*addresses)
        options = addresses.extract_options!
        retrieve_pool_options(options)
        Heddle::Memcached::DalliCompatible.new(addresses.flatten, options)
      end
    end)
  end

  # Until version 7.2 Rails' own returns what dalli does: a number, another one each time; false for a failure.
  module Written
    def write(...) = !!super
  end

  def stores(address, **options)
    [ActiveSupport::Cache::MemCacheStore, self.class.on_heddle, ActiveSupport::Cache::HeddleStore].map do |klass|
      dalli = (klass <= ActiveSupport::Cache::MemCacheStore) ? {protocol: :meta} : {}
      klass.new(address, namespace: "#{name}#{rand(1 << 30)}", **dalli, **options)
        .tap { |cache| cache.logger = Logger.new(@log, level: :error) }
        .tap { |cache| cache.extend(Written) if ActiveSupport.version < "7.2" }
    end
  end

  def assert_same_answers(stores)
    theirs, *ours = stores.map { |cache| yield cache }
    ours.zip(stores.drop(1)).each do |answers, cache|
      theirs.each_with_index { |answer, i| assert_equal [i, answer], [i, answers[i]], cache.class.name }
    end
  end

  def outcome
    yield
  rescue ArgumentError, KeyError => error
    error.class
  end

  def test_reading_and_writing
    server = real_server
    assert_same_answers(stores("#{server.host}:#{server.port}")) do |cache|
      keys = ["plain", "with space", "ключ", "line\r\nend", "x" * 300, "ю" * 200, %w[a b], {c: 1}, :symbol]
      values = ["text", "ä", "\xff\r\n".b, "", nil, false, 1, 1.5, {a: [1, nil]}, Time.at(0), "y" * 100_000]
      [
        cache.read("none"), cache.exist?("none"), cache.delete("none"),
        keys.map { |key| [cache.write(key, key), cache.read(key), cache.exist?(key)] }, cache.read_multi(*keys),
        values.map { |value| [cache.write("value", value), cache.read("value"), cache.exist?("value")] },
        cache.delete("value"), cache.delete("value"), cache.exist?("value"),
        cache.write("large", Random.bytes(2 << 20)), cache.read("large"), cache.write("after", 1), cache.read("after"),
        cache.fetch("f") { 1 }, cache.fetch("f") { 2 }, cache.fetch("f", force: true) { 3 },
        cache.fetch("nil", skip_nil: true) { nil }, cache.exist?("nil"),
        outcome { cache.fetch("failing") { raise KeyError } }, cache.exist?("failing"),
        cache.write("once", 1, unless_exist: true), cache.write("once", 2, unless_exist: true), cache.read("once"),
        cache.write("versioned", 1, version: 1), cache.read("versioned", version: 1),
        cache.read("versioned", version: 2), cache.read("versioned"),
        cache.write("short", 1, expires_in: -1) && nil, cache.read("short"), cache.write("timed", 1, expires_in: 100),
        cache.read("timed"),
        cache.write("old", 1, expires_in: 0.01, race_condition_ttl: 10) && sleep(0.02) && nil, cache.read("old"),
        cache.fetch("kept", compress: true) { "z" * 10_000 }, cache.read("kept"), outcome { cache.read(nil) }
      ]
    end
  end

  def test_without_a_coder
    server = real_server
    assert_same_answers(stores("#{server.host}:#{server.port}", coder: nil)) do |cache|
      [
        cache.write("a", {b: 1}), cache.read("a"), cache.fetch("c") { nil }, cache.exist?("c"), cache.read("none"),
        cache.write_multi({"d" => 1, "e" => "x" * 10_000}) && nil, cache.read_multi("a", "d", "e", "none"),
        cache.write("r", "raw", raw: true), cache.read("r", raw: true), cache.increment("n"), cache.read("n", raw: true)
      ]
    end
  end

  def test_many_at_once
    server = real_server
    assert_same_answers(stores("#{server.host}:#{server.port}")) do |cache|
      cache.write_multi({"a" => 1, "b" => {c: 2}, "with space" => nil})
      [
        cache.read_multi("a", "b", "none", "with space"), cache.read_multi,
        cache.fetch_multi("a", "new") { |key| "made #{key}" }, cache.read("new"),
        cache.delete_multi(%w[a b none]), cache.read_multi("a", "b"), cache.delete_multi([]),
        cache.write_multi({"r" => 1, "s" => "text"}, raw: true) && nil, cache.read_multi("r", "s", raw: true)
      ]
    end
  end

  def test_counting
    server = real_server
    assert_same_answers(stores("#{server.host}:#{server.port}")) do |cache|
      cache.write("raw", 7, raw: true)
      cache.write("word", "word", raw: true)
      cache.write("object", 7)
      [
        cache.increment("up"), cache.increment("up", 3), cache.decrement("up", 2), cache.decrement("down"),
        cache.decrement("down", 5), cache.increment("down"),
        cache.increment("raw"), cache.read("raw", raw: true), cache.decrement("raw", 100), cache.increment("word"),
        cache.read("word", raw: true),
        cache.increment("object"), cache.read("object"), cache.increment("timed", 1, expires_in: 100)
      ]
    end
  end

  # A value that is not an entry of Rails' is a miss.
  def test_entries_that_cannot_be_read
    server = real_server
    assert_same_answers(stores("#{server.host}:#{server.port}")) do |cache|
      cache.write("torn", "\x04\bo:".b, raw: true)
      cache.write("fine", 1)
      [cache.read("torn"), cache.read_multi("torn", "fine"), cache.fetch("torn") { "anew" }, cache.read("torn")]
    end
  end

  # What Rails promises of every store, compared with each, and with Rails' own store on Redis.
  def each_store
    memcached = real_server
    cached = stores("#{memcached.host}:#{memcached.port}")
    cached << ActiveSupport::Cache::RedisCacheStore.new(url: Servers.redis.url, namespace: "#{name}#{rand(1 << 30)}")
    cached.each { |cache| yield cache, cache.class.name }
  end

  def test_expiry_and_races
    strict = ActiveSupport::Cache::Store.raise_on_invalid_cache_expiration_time
    ActiveSupport::Cache::Store.raise_on_invalid_cache_expiration_time = true
    each_store do |cache, store|
      assert_raises(ArgumentError, store) { cache.write("bad", 1, expires_in: -1) }
      assert_nil cache.read("bad"), store
      cache.write("old", 1, expires_in: 0.05)
      sleep 0.06
      assert_nil cache.read("old"), store
      cache.write("raced", 1, expires_in: 0.05, race_condition_ttl: 10)
      sleep 0.06
      made = cache.fetch("raced", race_condition_ttl: 10, expires_in: 10) do
        assert_equal 1, cache.fetch("raced") { flunk "two made it at once" }, store
        2
      end
      assert_equal [2, 2], [made, cache.read("raced")], store
    end
  ensure
    ActiveSupport::Cache::Store.raise_on_invalid_cache_expiration_time = strict
  end

  def test_namespaces_versions_and_nothing
    each_store do |cache, store|
      cache.write("k", 1)
      cache.write("k", 2, namespace: "other")
      assert_equal [1, 2], [cache.read("k"), cache.read("k", namespace: "other")], store
      cache.write("v", 1, version: 1)
      assert_equal [1, nil], [cache.read("v", version: 1), cache.read("v", version: 2)], store
      cache.write("nil", nil)
      assert_equal [true, nil], [cache.exist?("nil"), cache.fetch("nil") { flunk "nil is a value" }], store
      assert_equal({"k" => 1, "nil" => nil}, cache.read_multi("k", "nil", "none"), store)
      assert_equal({"k" => 1, "new" => "made"}, cache.fetch_multi("k", "new") { "made" }, store)
      assert_equal [5, 3], [cache.increment("n", 5), cache.decrement("n", 2)], store
      assert_equal "3", cache.read("n", raw: true), store
      assert_raises(NotImplementedError, store) { cache.delete_matched("k") } unless store.include?("Redis")
    end
  end

  def test_the_local_cache
    each_store do |cache, store|
      cache.write("k", 1)
      cache.with_local_cache do
        assert_equal 1, cache.read("k"), store
        other = cache.dup
        Thread.new { other.write("k", 2) }.join
        assert_equal 1, cache.read("k"), store
        cache.write("k", 3)
        assert_equal 3, cache.read("k"), store
        assert cache.delete("k"), store
        assert_nil cache.read("k"), store
      end
      assert_nil cache.read("k"), store
    end
  end

  # A server that is gone is a miss, and reported to subscribers.
  def test_a_server_that_is_gone
    address = "127.0.0.1:#{Servers.free_port}"
    reported = []
    subscriber = Class.new {
      define_method(:report) { |error, severity:, source:, **| reported << [error.class.name, severity, source] }
    }.new
    reporter = ActiveSupport::ErrorReporter.new(subscriber) if ActiveSupport.respond_to?(:error_reporter)
    before = ActiveSupport.error_reporter if reporter
    ActiveSupport.error_reporter = reporter if reporter
    assert_same_answers(stores(address)) do |cache|
      [cache.read("a"), cache.write("a", 1), cache.exist?("a"), cache.fetch("a") { 2 }, cache.read_multi("a", "b"),
        cache.delete("a"), cache.increment("a"), cache.decrement("a"),
        cache.write("a", 1, unless_exist: true), cache.write_multi({"a" => 1}) && nil, cache.fetch_multi("a") { 3 },
        outcome { cache.clear }]
    end
    refute_empty @log.string
    skip "this Rails has no error reporter" unless reporter
    assert_equal [:warning], reported.map { |_, severity, _| severity }.uniq
    assert_includes reported.map(&:last), "heddle_store.active_support"
  ensure
    ActiveSupport.error_reporter = before if reporter
  end

  def test_forgetting_everything
    server = Servers::Memcached.new.start
    assert_same_answers(stores("#{server.host}:#{server.port}")) do |cache|
      cache.write("key", 1)
      cache.clear
      [cache.read("key"), cache.stats.size, cache.stats.values.first.key?("cmd_get")]
    end
  ensure
    server&.stop
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"

# What ActiveSupport documents of its cache stores.
class MemcachedStoreTest < Minitest::Test
  include MemcachedHelpers

  hard_deadline 60

  def setup
    super
    begin
      require "logger"
      require "active_support"
      require "active_support/cache/heddle_store"
      require "active_support/notifications"
    rescue LoadError => error
      raise unless error.path.start_with?("active_support")

      skip "the gem activesupport is not installed"
    end
  end

  def store(**options)
    server = real_server
    ActiveSupport::Cache.lookup_store(:heddle_store, "#{server.host}:#{server.port}", {namespace: "#{name}#{rand(1 << 30)}", timeout: 10, **options})
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
    assert_equal "new", cache.fetch("old", race_condition_ttl: 10, expires_in: 10) { cache.read("old") ? "new" : flunk("the others have nothing meanwhile") }
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
    assert_equal [["cache_read.active_support", true], ["cache_read.active_support", true], ["cache_read.active_support", false]], events
  end

  def test_a_server_that_is_gone_is_a_miss
    port = Servers.free_port
    cache = ActiveSupport::Cache.lookup_store(:heddle_store, "127.0.0.1:#{port}", timeout: 2)
    assert_nil cache.read("key")
    assert_equal false, cache.write("key", 1)
    assert_equal 2, cache.fetch("key") { 2 }
    assert_equal({}, cache.read_multi("a"))
    assert_equal false, cache.delete("key")
    assert_nil cache.increment("key")
  end
end

# frozen_string_literal: true

require "support/memcached_helpers"

# What a client does against a real server, for each way to wait and each kind of connection.
module MemcachedBehaviour
  include MemcachedHelpers

  def with_client(**options)
    in_mode(self.class.wait_mode) do
      cache = client(self.class.way, **options)
      yield cache
      assert_at_rest(cache)
    end
  end

  def test_set_get_and_delete
    with_client do |cache|
      assert_nil cache.get("key")
      assert_equal true, cache.set("key", "välue")
      assert_equal "välue", cache.get("key")
      assert_equal Encoding::UTF_8, cache.get("key").encoding
      assert_equal true, cache.delete("key")
      assert_equal false, cache.delete("key")
      assert_nil cache.get("key")
    end
  end

  def test_values_of_all_kinds
    values = ["", "\xff\x00\r\n".b, "text", "x".encode("UTF-16LE"), 1, -1.5, nil, false, {a: [1, "two", nil]},
      "END\r\n", Time.at(0, 1), 1 << 80]
    with_client do |cache|
      values.each do |value|
        cache.set("value", value)
        value.nil? ? assert_nil(cache.get("value")) : assert_equal(value, cache.get("value"))
        assert_equal value.encoding, cache.get("value").encoding if value.is_a?(String)
        assert_equal [value], cache.get_multi("value").values
      end
    end
  end

  def test_values_of_all_sizes
    with_client(compress: false) do |cache|
      [0, 1, 4095, 4096, 16_383, 32_767, 32_768, 65_536, 300_000, (1 << 20) - 200].each do |size|
        value = Random.bytes(size)
        cache.set("size", value)
        assert_equal value, cache.get("size"), "#{size} bytes"
        assert_equal value, cache.get_multi("size", "none")["size"], "#{size} bytes"
      end
    end
  end

  def test_add_replace_append_prepend
    with_client do |cache|
      assert_equal false, cache.replace("key", 1)
      assert_equal false, cache.append("key", "1")
      assert_equal false, cache.prepend("key", "1")
      assert_equal true, cache.add("key", "b")
      assert_equal false, cache.add("key", "x")
      assert_equal true, cache.append("key", "c")
      assert_equal true, cache.prepend("key", "a")
      assert_equal "abc", cache.get("key")
      assert_equal true, cache.replace("key", "new")
      assert_equal "new", cache.get("key")
    end
  end

  def test_counting
    with_client do |cache|
      assert_nil cache.incr("count")
      assert_equal 5, cache.incr("count", 2, initial: 5)
      assert_equal 7, cache.incr("count", 2)
      assert_equal 0, cache.decr("count", 100)
      # No further step from here: memcached looks for a minus sign in a number above 2^63 by strchr, beyond the item's
      # end too (safe_strtoull, util.c of 1.6), and refuses it when another item's leftovers there have one.
      assert_equal (1 << 64) - 1, cache.incr("count", (1 << 64) - 1)
      cache.set("word", "word")
      assert_raises(Heddle::Memcached::NotANumber) { cache.incr("word") }
      assert_raises(ArgumentError) { cache.incr("count", -1) }
      assert_raises(ArgumentError) { cache.incr("count", 1.5) }
      assert_equal "word", cache.get("word")
    end
  end

  def test_cas
    with_client do |cache|
      assert_nil cache.get_cas("key")
      assert_nil cache.cas("key") { flunk "there is nothing to change" }
      cache.set("key", 1)
      assert_equal true, cache.cas("key") { |value| value + 1 }
      assert_equal 2, cache.get("key")
      assert_equal false, cache.cas("key") { cache.set("key", 10) && 3 }
      assert_equal 10, cache.get("key")
      _, cas = cache.get_cas("key")
      assert_equal false, cache.delete("key", cas: cas + 1)
      assert_equal false, cache.set("key", 11, cas: cas + 1)
      assert_equal true, cache.delete("key", cas: cas)
      assert_equal false, cache.set("key", 11, cas: cas)
      assert_nil cache.get("key")
    end
  end

  def test_times_to_live
    with_client do |cache|
      {nil => nil, 0 => nil, 100 => 100, 99.2 => 100, 30 * 86_400 => 30 * 86_400, 40 * 86_400 => 40 * 86_400,
       Time.now + 500 => 500, Time.now.to_i + 50 * 86_400 => 50 * 86_400}.each do |given, seconds|
        cache.set("key", 1, ttl: given)
        left = cache.get_entry("key").ttl
        seconds ? assert_in_delta(seconds, left, 3, given.inspect) : assert_nil(left)
      end
      cache.set("key", 1, ttl: -1)
      assert_nil cache.get("key")
      cache.set("key", 1, ttl: Time.now - 5)
      assert_nil cache.get("key")
      cache.set("key", 1)
      assert_equal true, cache.touch("key", 60)
      assert_in_delta 60, cache.get_entry("key").ttl, 3
      assert_equal 1, cache.gat("key", 600)
      assert_in_delta 600, cache.get_entry("key").ttl, 3
      assert_equal true, cache.touch("key")
      assert_nil cache.get_entry("key").ttl
      assert_equal false, cache.touch("none", 60)
      assert_nil cache.gat("none", 60)
      [Float::NAN, Float::INFINITY, "60", Object.new, 1 << 40].each do |bad|
        assert_raises(ArgumentError, bad.inspect) { cache.set("key", 1, ttl: bad) }
      end
    end
  end

  def test_entries
    with_client do |cache|
      assert_nil cache.get_entry("key")
      cache.set("key", "value", ttl: 100)
      entry = cache.get_entry("key")
      assert_equal ["value", 4, false, false], [entry.value, entry.flags, entry.hit, entry.stale]
      assert_equal true, cache.get_entry("key").hit
      assert_operator entry.cas, :>, 0
      assert_includes 0..3, entry.idle
    end
  end

  def test_raw_values_are_exact_bytes
    with_client do |cache|
      bytes = "\x04\b[\x06i\x06".b # what Marshal makes of [1]
      cache.set("key", [1])
      assert_equal [bytes] * 4, [cache.get("key", raw: true), cache.get_entry("key", raw: true).value,
        cache.gat("key", 100, raw: true), cache.get_cas("key", raw: true).first]
      assert_equal({"key" => bytes}, cache.get_multi_raw("key"))
      assert_equal bytes, cache.fetch("key", raw: true) { flunk "it is there" }
      assert_equal "made", cache.fetch("raw", raw: true) { "made" }
      assert_equal ["made", 0], cache.get_entry("raw").to_h.values_at(:value, :flags)
      assert_raises(Heddle::Memcached::EncodeError) { cache.set("key", [1], raw: true) }
    end
  end

  def test_keys_of_all_kinds
    keys = ["a", "with space", "line\r\nend", "\x00\x7f", "ключ", "\xff\xfe".b, "x" * 250, "x" * 251, "ю" * 300,
      "x" * 9000, :symbol, 17]
    with_client do |cache|
      keys.each_with_index { |key, i| assert_equal true, cache.set(key, i), key.inspect }
      keys.each_with_index { |key, i| assert_equal i, cache.get(key), key.inspect }
      assert_equal keys.each_with_index.to_h, cache.get_multi(keys)
      assert_equal keys.size, cache.delete_multi(keys)
      ["", nil].each { |bad| assert_raises(Heddle::Memcached::InvalidKey) { cache.get(bad) } }
      assert_raises(Heddle::Memcached::InvalidKey) { cache.get_multi("a", "") }
    end
  end

  # The C code builds the same requests as Ruby code would, at each length that a key can have, and beyond.
  def test_a_namespace_that_is_a_proc_gives_the_same_keys
    keys = ["a", "with space", "ключ", "\xff\xfe".b, :symbol, 17, *(225..252).map { |length| "x" * length }]
    with_client(namespace: :"#{name}ä") do |cache|
      asked = []
      asking = client(self.class.way, namespace: -> { asked << 1 && "#{name}ä" })
      keys.each_with_index { |key, i| assert_equal true, cache.set(key, i), key.inspect }
      assert_equal keys.each_with_index.to_h, asking.get_multi(keys)
      keys.each_with_index { |key, i| assert_equal i, asking.get(key), key.inspect }
      assert_equal 2 * keys.size, asked.size
      assert_equal keys.size, asking.delete_multi(keys)
      ["", nil].each { |bad| assert_raises(Heddle::Memcached::InvalidKey) { cache.get(bad) } }
    end
  end

  def test_many_at_once
    pairs = Array.new(2500) { |i| ["key #{i}", (i % 3).zero? ? {number: i} : "value #{i}" * (i % 20)] }.to_h
    with_client do |cache|
      assert_nil cache.set_multi(pairs, ttl: 100)
      assert_equal pairs, cache.get_multi(pairs.keys)
      assert_equal pairs.keys, cache.get_multi(pairs.keys).keys
      assert_equal pairs.slice("key 1", "key 9"), cache.get_multi("key 9", "none", ["key 1", "key 9"]).sort.to_h
      cas = cache.get_multi_cas("key 1", "none")
      assert_equal [["key 1", cache.get_cas("key 1")]], cas.to_a
      large = Array.new(40) { |i| ["large #{i}", Random.bytes([10, 20_000, 50_000, 5000][i % 4])] }.to_h
      cache.set_multi(large)
      assert_equal large, cache.get_multi(large.keys)
      assert_equal({}, cache.get_multi)
      assert_equal({}, cache.get_multi([]))
      assert_nil cache.set_multi({})
      assert_nil cache.set_multi({"bytes" => "ä", "number" => "7"}, raw: true)
      assert_equal ["ä".b, 8], [cache.get("bytes"), cache.incr("number")]
      assert_raises(Heddle::Memcached::EncodeError) { cache.set_multi({"bytes" => 1}, raw: true) }
      assert_equal 0, cache.delete_multi
      assert_equal 2, cache.delete_multi("key 1", "none", "key 2")
      assert_equal 2498, cache.get_multi(pairs.keys).size
    end
  end

  def test_a_value_that_is_too_large_for_the_server
    with_client(max_value_bytes: nil, compress: false) do |cache|
      cache.set("large", "before")
      cache.set("other", "other")
      assert_raises(Heddle::Memcached::ValueTooLarge) { cache.set("large", "x" * (2 << 20)) }
      assert_equal "other", cache.get("other")
      refute_equal "x" * (2 << 20), cache.get("large")
      assert_raises(Heddle::Memcached::ValueTooLarge) do
        cache.set_multi({"one" => 1, "large" => "x" * (2 << 20), "two" => 2})
      end
      assert_equal({"one" => 1, "two" => 2}, cache.get_multi("one", "two"))
      assert_equal 1, connections(cache).first
    end
    with_client do |cache|
      assert_raises(Heddle::Memcached::ValueTooLarge) { cache.set("large", Random.bytes(2 << 20)) }
      assert_raises(Heddle::Memcached::ValueTooLarge) do
        cache.set_multi({"one" => 1, "large" => Random.bytes(2 << 20)})
      end
      assert_raises(Heddle::Memcached::ValueTooLarge) do
        cache.pipelined { |batch| batch.add("large", Random.bytes(2 << 20)) }
      end
      assert_equal [0, 0], connections(cache), "no call needed a connection"
    end
  end

  # A caller's buffers are other ones by the time that they are sent.
  def test_pipelined_keeps_what_it_was_given
    with_client do |cache|
      key, value = +"", (+"").b
      cache.pipelined do |batch|
        3.times { |n| batch.set(key.replace("kept #{n}"), value.replace("value #{n}")) }
        batch.append(key.replace("kept 0"), value.replace("!"))
        key.clear
        value.clear
      end
      assert_equal ["value 0!", "value 1", "value 2"], Array.new(3) { |n| cache.get("kept #{n}") }
    end
  end

  def test_pipelined
    with_client do |cache|
      result = cache.pipelined do |batch|
        assert_nil batch.set("a", {x: 1}, ttl: 100)
        batch.get("a")
        batch.get("none")
        batch.add("a", 1)
        batch.replace("a", "text")
        batch.append("a", "!")
        batch.prepend("a", "¡")
        batch.get("a")
        batch.incr("count", 1, initial: 7)
        batch.decr("count", 3)
        batch.incr("none")
        batch.delete("none")
        batch.delete("a")
      end
      assert_equal [true, {x: 1}, nil, false, true, true, true, "¡text!", 7, 4, nil, false, true], result
      assert_equal [], cache.pipelined { |_| nil }
      cache.set("word", "word")
      assert_raises(Heddle::Memcached::NotANumber) do
        cache.pipelined { |batch| batch.incr("word") && batch.set("after", 1) }
      end
      assert_equal Array.new(3000) { |i| i },
        cache.pipelined { |batch| 3000.times { |i| batch.incr("many", 1, initial: 0) } }
    end
  end

  def test_fetch
    with_client do |cache|
      assert_nil cache.fetch("key")
      assert_equal 1, cache.fetch("key", ttl: 100) { 1 }
      assert_equal 1, cache.fetch("key") { flunk "it is there" }
      assert_in_delta 100, cache.get_entry("key").ttl, 3
      assert_equal "", cache.fetch("empty") { "" }
      assert_equal "", cache.fetch("empty") { flunk "it is there" }
      assert_raises(StopIteration) { cache.fetch("failing") { raise StopIteration } }
      assert_raises(KeyError) { cache.fetch("failing") { raise KeyError } }
      assert_nil cache.get("failing")
      assert_equal 2, cache.fetch("failing") { 2 }
    end
  end

  def test_one_reader_renews_a_stale_item_while_others_get_the_old_value
    with_client do |cache|
      cache.set("key", "old", ttl: 1000)
      cache.delete("key", stale_for: 100)
      assert_equal "old", cache.get("key"), "a plain reader gets the old value"
      assert_equal ["old", true], cache.get_entry("key").to_h.values_at(:value, :stale)
      assert_equal({"key" => "old"}, cache.get_multi("none", "key"))
      assert_equal ["old"], cache.pipelined { |batch| batch.get("key") }
      assert_equal ["old"], [cache.gat("key", 1000)]
      made = cache.fetch("key", ttl: 100) do
        assert_equal "old", cache.fetch("key") { flunk "another task makes the value" }
        "new"
      end
      assert_equal "new", made
      assert_equal "new", cache.get("key")
      assert_equal "newer", cache.fetch("key", ttl: 1000, refresh: 500) { "newer" }
      assert_equal "newer", cache.fetch("key", ttl: 1000, refresh: 500) { flunk "it has more than 500 s left" }
    end
  end

  # A task that fails to renew the value gives the right to renew it to the next that asks; all others get the old
  # value meanwhile.
  def test_a_block_that_fails_over_a_stale_item
    with_client do |cache|
      making_fails = [-> { raise KeyError }, -> { throw :out }, -> { Random.bytes(2 << 20) }]
      making_fails.each do |failing|
        cache.set("key", "old", ttl: 1000)
        began = Heddle::Clock.now
        cache.delete("key", stale_for: 100)
        2.times do
          catch(:out) { cache.fetch("key", &failing) }
        rescue KeyError, Heddle::Memcached::ValueTooLarge
          assert_equal "old", cache.get("key")
        end
        assert_equal ["old", true], cache.get_entry("key").to_h.values_at(:value, :stale)
        left = cache.get_entry("key").ttl
        assert_includes (98 - (Heddle::Clock.now - began))..100, left # memcached counts whole seconds
        assert_equal "new", cache.fetch("key") { "new" }
        cache.set("key", "old", ttl: 1000)
        begin
          catch(:out) { cache.fetch("key", refresh: 2000, &failing) }
        rescue KeyError, Heddle::Memcached::ValueTooLarge
          assert_equal "old", cache.get("key")
        end
        assert_equal "new", cache.fetch("key", refresh: 2000) { "new" }
      end
      cache.set("key", "old", ttl: 1000)
      cache.delete("key", stale_for: 100)
      assert_raises(KeyError) { cache.fetch("key") { cache.set("key", "theirs") && raise(KeyError) } }
      assert_equal ["theirs", false], cache.get_entry("key").to_h.values_at(:value, :stale),
        "the new value of another client"
    end
  end

  def test_a_failed_renewal_does_not_mark_a_newer_value_as_stale
    with_client do |cache|
      cache.set("key", "old")
      cache.delete("key", stale_for: 100)
      cache.send(:read, "key", true, nil, nil, nil) # has the right now
      cache.set("key", "new")
      cache.send(:rearm, "key")
      assert_equal ["new", false], cache.get_entry("key").to_h.values_at(:value, :stale)
    end
  end

  def test_a_value_that_changed_during_its_renewal_is_kept
    with_client do |cache|
      assert_equal "mine", cache.fetch("key") { cache.set("key", "theirs") && "mine" }
      assert_equal "theirs", cache.get("key")
      cache.delete("key")
      assert_equal "mine", cache.fetch("key") { cache.delete("key") && "mine" }
      assert_nil cache.get("key")
    end
  end

  def test_one_task_makes_the_value_and_the_others_wait
    with_client(pool: 20) do |cache|
      made = Queue.new
      work = lambda do
        cache.fetch("key", lock: 30) do
          made << true
          wait_until { made.num_waiting.zero? && sleep(0.05) }
          "value"
        end
      end
      start = (self.class.wait_mode == :fiber) ? Heddle.method(:spawn) : Thread.method(:new)
      values = Array.new(10) { start.call(&work) }.map(&:value)
      assert_equal ["value"] * 10, values
      assert_equal 1, made.size
    end
  end

  def test_version_stats_and_flush
    with_client do |cache|
      name = cache.version.keys.first
      assert_match(/\A1\.6\./, cache.version[name])
      assert_operator cache.stats[name]["cmd_get"].to_i, :>=, 0
      assert_includes cache.stats(:settings)[name], "maxconns"
      assert_raises(Heddle::Memcached::ClientError) { cache.stats("nonsense") }
      assert_raises(ArgumentError) { cache.stats("items\r\nflush_all") }
      assert_nil cache.verbosity(0)
      assert_nil cache.reset_stats
    end
  end
end

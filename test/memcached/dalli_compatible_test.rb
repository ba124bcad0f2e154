# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"

# Beside a real dalli: the same keys, servers and bytes, and the same answers.
class MemcachedDalliCompatibleTest < Minitest::Test
  include MemcachedHelpers

  hard_deadline 60

  def setup
    super
    require_dalli
  end

  def pair(**options)
    server = real_server
    [Dalli::Client, Heddle::Memcached::DalliCompatible].map do |klass|
      dalli = (klass == Dalli::Client) ? {protocol: :meta} : {}
      klass.new("#{server.host}:#{server.port}", {namespace: "#{name}#{rand(1 << 30)}", **options, **dalli})
    end
  end

  # The same calls to both, each in its own namespace, with the same answers.
  def test_the_same_answers
    answers = pair.map do |cache|
      answer = ->(value) { (value.is_a?(Integer) && value > 100) ? :number : value }
      [
        cache.get("none"), cache.set("a", "ä", 100).class, cache.get("a"), cache.get("a").encoding,
        cache.set("b", {x: 1}).class, cache.get("b"),
        cache.set("raw", "raw", 0, raw: true).class, cache.get("raw", raw: true), cache.get("raw"),
        cache.add("a", 1), cache.add("c", 1).class, cache.replace("none", 1),
        cache.replace("c", "2", 0, raw: true).class,
        cache.append("c", "3"), cache.prepend("c", "1"), cache.append("none", "x"), cache.get("c"),
        cache.incr("n"), cache.incr("n", 2, 100, 7), cache.incr("n", 2), cache.decr("n", 100),
        cache.get_cas("none"), cache.get_cas("a").first, cache.get_cas("a") { |value, cas| [value, cas.class] },
        cache.cas("none") { 1 }, cache.cas("a") { |value| value + "!" }.class, cache.get("a"),
        cache.cas!("fresh") { |value| [value] }.class, cache.get("fresh"), cache.set_cas("a", 1, 3),
        cache.delete_cas("a", 3),
        cache.get_multi("a", "b", "none", :c), cache.get_multi_cas("b").transform_values(&:first),
        cache.touch("a", 100), cache.touch("none", 1),
        cache.gat("a", 100), cache.fetch("f", 100) { 5 }, cache.fetch("f") { 6 }, cache.fetch("none"),
        cache.quiet { cache.set("q", 1) && cache.delete("b") }, cache.get("q"), cache.get("b"),
        cache.multi { 3.times { |i| cache.set("m#{i}", i) } }, cache.get_multi("m0", "m1", "m2"),
        cache.set_multi({"s" => 1, :t => 2}, 100).class, cache.get("t"), cache.delete("t"), cache.delete("t"),
        cache.set("x" * 300, 1).class, cache.get("x" * 300), cache.set("ключ с пробелом", 2).class,
        cache.get_multi("ключ с пробелом"),
        cache.with { |client| client.get("s") }, cache.stats.keys.size, cache.version.values.first[0, 3],
        begin
          cache.set("big", Random.bytes(2 << 20))
        rescue Dalli::ValueOverMaxSize
          :too_large
        end,
        begin
          cache.set("proc", proc {})
        rescue Dalli::MarshalError
          :no_bytes
        end,
        begin
          cache.get("")
        rescue ArgumentError
          :bad_key
        end
      ].map(&answer)
    end
    answers.first.each_with_index { |answer, i| assert_equal [i, answer], [i, answers.last[i]] }
  end

  # What dalli 5 adds: metadata of an item, marks instead of deletions, digits for numbers.
  def test_the_same_answers_of_dalli_5
    skip "this is dalli #{Dalli::VERSION}" unless Dalli::Client.method_defined?(:get_multi_with_metadata)

    answers = pair(raw: false).map do |cache|
      plain = ->(found) { found.merge(cas: found[:cas].positive?) }
      all = {return_hit_status: true, return_last_access: true, return_ttl_remaining: true}
      cache.set("a", {x: 1}, "100")
      cache.set("b", 2)
      [
        cache.get_with_metadata("none"), cache.get_with_metadata("none", all), plain.call(cache.get_with_metadata("a")),
        plain.call(cache.get_with_metadata("a", all)),
        plain.call(cache.get_with_metadata("b", return_ttl_remaining: true)),
        cache.get_with_metadata("raw", raw: true)[:miss], cache.get_with_metadata_result("a").value,
        cache.get_with_metadata_result("a").hit?, cache.get_with_metadata_result("none").miss?,
        cache.get_with_metadata("new", vivify_ttl: 30).slice(:won_recache, :lost_recache),
        cache.get_with_metadata("new", vivify_ttl: 30).slice(:won_recache, :lost_recache),
        cache.get_with_metadata("a", recache_ttl: 1000).slice(:value, :won_recache, :lost_recache),
        cache.get_with_metadata("a", recache_ttl: "1000").slice(:won_recache, :lost_recache),
        cache.delete("a", invalidate: true, tombstone_ttl: 30), cache.delete("none", invalidate: true),
        cache.get_with_metadata("a", all).slice(:value, :stale, :miss, :ttl_remaining),
        cache.get_multi_with_metadata("none", "a", "b").transform_values { |found| plain.call(found) },
        cache.get_multi_with_metadata_result("a", "b")
          .transform_values { |found| [found.value, found.stale?, found.hit?] },
        cache.get_multi_with_metadata("b") { |key, found| raise key unless found[:value] == 2 },
        cache.set_multi({"c" => 1, "d" => 2}).class,
        cache.delete_multi(%w[c d none], invalidate: true, tombstone_ttl: 5),
        cache.get_multi_with_metadata("c", "d").transform_values { |found| found[:stale] },
        cache.incr("n", "3", nil, "7"), cache.incr("n", "3"), cache.decr("n", "1"), cache.set_cas("b", 3, "1"),
        cache.gat("n", "60", raw: true), cache.get_cas("n", raw: true).first,
        cache.quiet { cache.set("q", 1) }, cache.get("q"), cache.reset_stats, cache.drain_deferred_responses,
        !!cache.alive!,
        [-> { cache.delete("a", tombstone_ttl: 5) }, -> { cache.incr("n", "many") }, -> { cache.incr("n", -1) },
          -> { cache.set("a", 1, "soon") }, -> { cache.set_cas("b", 3, "x") }].map do |work|
          work.call
        rescue ArgumentError
          :refused
        end
      ]
    end
    answers.first.each_with_index { |answer, i| assert_equal [i, answer], [i, answers.last[i]] }
  end

  # Each public method of dalli's can be called with the same arguments.
  def test_the_same_methods
    theirs = Dalli::Client.public_instance_methods(false)
    ours = Heddle::Memcached::DalliCompatible
    missing = theirs.reject { |name| ours.public_method_defined?(name) }
    assert_empty missing
    theirs.each do |name|
      wanted, given = [Dalli::Client, ours].map { |klass| klass.instance_method(name).parameters }
      assert_equal wanted.count { |kind, _| kind == :req }, given.count { |kind, _| kind == :req }, name
      positional = ->(list) {
        (list.any? { |kind, _| kind == :rest }) ? Float::INFINITY : list.count { |kind, _| %i[req opt].include?(kind) }
      }
      assert_operator positional[given], :>=, positional[wanted], "#{name}: #{wanted} and #{given}"
      keywords = ->(list) { list.filter_map { |kind, keyword| keyword if %i[key keyreq].include?(kind) } }
      assert_empty keywords[wanted] - keywords[given], name unless given.any? { |kind, _| kind == :keyrest }
    end
  end

  def test_a_flush_inside_of_quiet
    server = Servers::Memcached.new.start
    answers = [Dalli::Client, Heddle::Memcached::DalliCompatible].map do |klass|
      cache = klass.new("#{server.host}:#{server.port}", (klass == Dalli::Client) ? {protocol: :meta} : {})
      cache.set("before", 1)
      quiet = cache.quiet { [cache.set("in", 1), cache.flush, cache.set("after", 1)] }
      [quiet, cache.get_multi("before", "in", "after"), cache.flush, cache.flush_all(0), cache.get("after")]
    end
    assert_equal answers.first, answers.last
  ensure
    server&.stop
  end

  def test_each_reads_what_the_other_wrote
    server = real_server
    options = {namespace: "both"}
    dalli = Dalli::Client.new("#{server.host}:#{server.port}", {**options, protocol: :meta})
    ours = Heddle::Memcached::DalliCompatible.new("#{server.host}:#{server.port}", options)
    native = client_of("#{server.host}:#{server.port}", namespace: "both")
    keys = ["plain", "with space", "ю" * 200, "x" * 400, "ё\n"]
    values = ["text", "ä" * 3000, {a: [1]}, nil, "bytes \xff".b, 1.5, "y" * 100_000]
    keys.product(values) do |key, value|
      writers = {dalli: dalli, ours: ours}
      writers.each do |name, writer|
        writer.set(key, value)
        read = [dalli, ours, native].map { |reader| reader.get(key) }
        assert_equal [value] * 3, read, "#{key.inspect} by #{name}"
      end
      native.set(key, value)
      assert_equal [value], [ours.get(key)]
      assert_equal value.b, dalli.get(key).b if value.is_a?(String) # dalli 4 does not know the flag for UTF-8
    end
  end

  # Over a thousand keys, several weights and numbers of servers, and with a server down.
  def test_the_same_ring
    random = Random.new(Minitest.seed || 1)
    rings = [%w[a:1 b:2], %w[a:11211 b:11211 c:11211], %w[10.0.0.1:11211:5 10.0.0.2:11211:1 10.0.0.3:11211:3],
      %w[/tmp/s1 /tmp/s2:7 h:1:2],
      Array.new(20) { |i| "cache#{i}.test:11211:#{random.rand(1..9)}" }]
    rings.each do |servers|
      theirs = Dalli::Client.new(servers, protocol: :meta).send(:ring)
      ours = client_of(*servers)
      down = servers.size - 1
      500.times do |i|
        key = random.bytes(random.rand(1..250)).then { |bytes| i.even? ? bytes.unpack1("H*")[0, 250] : bytes }
        key = key[0, 180]
        expected = theirs.send(:server_for_hash_key, Zlib.crc32(key)).name
        assert_equal expected, ours.send(:server_for, key).name
        next unless i < 50

        theirs.servers.each_with_index { |server, n| server.define_singleton_method(:alive?) { n != down } }
        ours.instance_variable_get(:@servers).each_with_index do |server, n|
          server.define_singleton_method(:usable?) { n != down }
        end
        assert_equal theirs.server_for_key(key).name, ours.send(:route, key).name
      end
    end
  end

  def test_the_same_keys
    random = Random.new(Minitest.seed || 1)
    alphabets = [%w[a b : 1], ["x", " ", "\n", "é"], ["ю", "z"], ["\x00", "a", "€"]]
    [nil, "app", proc { "made" }].each do |namespace|
      theirs = Dalli::KeyManager.new(namespace: namespace, protocol: :meta)
      ours = Heddle::Memcached::Keys.new(namespace: namespace)
      300.times do
        key = Array.new(random.rand(1..400)) { alphabets.sample(random: random).sample(random: random) }.join
        assert_equal theirs.validate_key(key), ours.wire(key)
      end
    end
  end

  def test_errors_have_dallis_classes
    port = Servers.free_port
    ours = Heddle::Memcached::DalliCompatible.new("127.0.0.1:#{port}", socket_timeout: 2)
    error = assert_raises(Dalli::RingError) { 3.times { ours.get("key") } }
    assert_includes error.message, "ECONNREFUSED"
    assert_equal({}, ours.get_multi("key"))
    assert_raises(ArgumentError) { Heddle::Memcached::DalliCompatible.new(nil, no_such_option: 1) }
    assert_raises(Dalli::NotPermittedMultiOpError) { ours.quiet { ours.get("key") } }
  end

  # The same in a task, where both wait through the scheduler.
  instance_methods(false).grep(/\Atest_/).each do |test|
    define_method(:"#{test}_in_a_task") { Heddle.run { send(test) } }
  end
end

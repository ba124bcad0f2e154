# frozen_string_literal: true

require "test_helper"
require "support/collections"
require "support/memcached_helpers"

# Clients whose tasks share connections to real servers.
class MemcachedSharingClientsTest < Minitest::Test
  include MemcachedHelpers
  include Collections

  hard_deadline 60

  # An operation that needs a connection of its own gets it although others come all the time.
  def test_a_whole_connection_among_those_who_share
    cache = client(pool: 1)
    cache.set_multi({"a" => "1", "b" => "2"})
    done = false
    Heddle.run do
      busy = Array.new(20) { Heddle.spawn { cache.get("a") until done } }
      long = "l" * 100_000
      10.times do
        assert_equal({"a" => "1", "b" => "2"}, cache.get_multi("a", "b"))
        assert cache.set("long", long)
      end
      done = true
      busy.each(&:value)
      assert_equal long, cache.get("long")
    end
    assert_at_rest(cache)
  end

  # memcached 1.6.18 stumbles over requests that do not begin with a record of TLS.
  def test_tls_connections_are_not_shared
    cache = client(:tls, pool: 2)
    cache.set_multi((1..30).to_h { |n| [n.to_s, n] })
    Heddle.run do
      assert_equal [*1..30], (1..30).map { |n| Heddle.spawn { cache.get(n.to_s) } }.map(&:value)
    end
    assert_at_rest(cache)
  end

  def test_large_values_among_small_ones
    cache = client(pool: 1, compress: false, serializer: :string)
    sizes = [0, 1, 10_000, 20_000, 70_000, 200_000, 900_000]
    all = sizes.each_with_index.to_h { |size, n| ["k#{n}", n.to_s * size] }
    cache.set_multi(all, raw: true)
    Heddle.run do
      3.times do
        keys = (all.keys * 4).shuffle
        assert_equal all.values_at(*keys), keys.map { |key| Heddle.spawn { cache.get(key) } }.map(&:value)
      end
    end
    assert_at_rest(cache)
  end

  def test_threads_have_connections_of_their_own
    cache = client(pool: 2, serializer: :string)
    keys = Array.new(30) { |n| "k#{n}" }
    cache.set_multi(keys.to_h { |key| [key, key] })
    runs = Array.new(3) do
      Thread.new do
        Heddle.run do
          keys.map { |key| Heddle.spawn { Array.new(50) { cache.get(key) }.uniq } }.map(&:value)
        end
      end
    end
    plain = Array.new(3) { |n| Thread.new { Array.new(200) { cache.get(keys[n]) }.uniq } }
    runs.each { |run| assert_equal keys.zip, run.value }
    assert_equal keys.first(3).zip, plain.map(&:value)
    assert_at_rest(cache)
  end

  def test_collections_at_each_allocation
    assert_right_under_collections(<<~RUBY, {"PORT" => real_server.port.to_s})
      require "heddle/memcached"
      cache = Heddle::Memcached.new("127.0.0.1:\#{ENV.fetch("PORT")}", pool: 2, timeout: nil, serializer: :string)
      keys = (1..12).map { |n| "gc\#{n}" }
      keys.each { |key| cache.set(key, key * 20) }
      all = lambda do |_ = nil|
        keys.map { |key| Heddle.spawn { [cache.get(key), cache.set(key, key * 20), cache.get(key)] } }
          .map(&:value).each_with_index.map { |got, n| got == [keys[n] * 20, true, keys[n] * 20] }
      end
      2.times(&all)
      stress(true) { all.call }
    RUBY
  end

  # Whatever ends their neighbours, tasks read the values of their own keys.
  def test_cancels_and_deadlines_at_random
    cache = client(pool: 2, serializer: :string, compress: false)
    keys = Array.new(40) { |n| "k#{n}" }
    text = ->(key) { key * ((key.hash % 5).zero? ? 20_000 : 10) }
    keys.each { |key| cache.set(key, text.call(key)) }
    random = Random.new(7)
    right = 0
    Heddle.run do
      400.times do
        tasks = keys.sample(random.rand(5..40), random: random).map do |key|
          limit = (random.rand < 0.3) ? random.rand * 0.002 : nil
          Heddle.spawn do
            value = Heddle.deadline(limit) { cache.get(key) }
            raise "#{key} got #{value[0, 20]}" unless value == text.call(key)

            right += 1
          rescue Heddle::DeadlineExceeded
            nil
          end
        end
        tasks.sample(3, random: random).each(&:cancel) if random.rand < 0.5
        tasks.each(&:wait)
        tasks.each { |task| raise task.error if task.status == :failed }
      end
    end
    assert_operator right, :>, 1000
    assert_at_rest(cache)
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"
require "zlib"

# Values on their way: serializers, compressors, and how large a few bytes may become.
class MemcachedCodecTest < Minitest::Test
  include MemcachedHelpers

  hard_deadline 60

  # Reverses bytes, and notes that it did.
  module Reverser
    def self.compress(bytes) = bytes.reverse.b[0...-1]
    def self.decompress(bytes) = "#{bytes}?".reverse
  end

  class Failing
    def dump(_) = raise("no dump")
    def load(_) = raise("no load")
  end

  def test_serializers
    value = {"a" => [1, 2.5, nil, true, "ä"]}
    {marshal: value, json: value, string: nil}.each do |serializer, expected|
      cache = client(serializer: serializer)
      if expected
        cache.set("key", value)
        assert_equal [expected] * 2, [cache.get("key"), cache.get_multi("key")["key"]], serializer
      else
        assert_raises(Heddle::Memcached::EncodeError) { cache.set("key", value) }
      end
      cache.set("text", "ä")
      assert_equal ["ä", Encoding::UTF_8], [cache.get("text"), cache.get("text").encoding], serializer
    end
    own = Class.new {
      def self.dump(value) = value.inspect
      def self.load(bytes) = "read #{bytes}"
    }
    cache = client(serializer: own)
    cache.set("key", [1])
    assert_equal "read [1]", cache.get("key")
    assert_raises(ArgumentError) { client(serializer: :yaml) }
    assert_raises(ArgumentError) { client(serializer: Object.new) }
  end

  # Each of them is within the limit for one value.
  def test_values_of_one_reply_that_are_too_large_together
    bomb = Zlib.deflate("\0" * 900_000)
    cache = client(max_decompressed_bytes: 1 << 20)
    keys = Array.new(6) { |i| "bomb#{i}" }
    keys.each { |key| cache.send(:store, key, bomb, Heddle::Memcached::Codec::COMPRESSED, nil, "S", nil) }
    assert_equal [900_000] * 4, cache.get_multi(*keys.first(4)).values.map(&:bytesize)
    assert_raises(Heddle::Memcached::DecodeError) { cache.get_multi(*keys) }
    assert_raises(Heddle::Memcached::DecodeError) { cache.pipelined { |line| keys.each { |key| line.get(key) } } }
    assert_equal [900_000] * 4, cache.pipelined { |line| keys.first(4).each { |key| line.get(key) } }.map(&:bytesize)
    assert_equal 900_000, cache.get(keys.last).bytesize
    assert_at_rest(cache)
  end

  # The error is another thread's, and proves nothing about the value.
  def test_an_exception_from_another_thread_during_decoding
    interrupted = Class.new(StandardError)
    own = Class.new do
      define_singleton_method(:interrupt) do
        Thread.current[:interrupt].tap { Thread.current[:interrupt] = nil }&.then do |error|
          Thread.new(Thread.current) { |thread| thread.raise(error) }.join
        end
      end
      define_singleton_method(:dump) { |value| interrupt || Marshal.dump(value) }
      define_singleton_method(:load) { |bytes| interrupt || Marshal.load(bytes) }
      define_singleton_method(:compress) { |bytes| interrupt || Zlib.deflate(bytes) }
      define_singleton_method(:decompress) { |bytes| interrupt || Zlib.inflate(bytes) }
    end
    cache = client(serializer: own, compressor: own)
    cache.set("key", [1])
    cache.set("long", ["x" * 9000])
    interrupts = {
      dump: -> { cache.set("key", [2]) },
      load: -> { cache.get("key") },
      decompress: -> { cache.get("long") },
      load_many: -> { cache.get_multi("key") }
    }
    interrupts.each do |name, work|
      Thread.current[:interrupt] = interrupted
      assert_raises(interrupted, name.to_s, &work)
      assert_at_rest(cache)
    end
    assert_equal [1], cache.get("key")
  ensure
    Thread.current[:interrupt] = nil
  end

  # The second exception comes while the codec repeats the work, to see whether the value is at fault.
  def test_two_exceptions_from_other_threads_during_decoding
    interrupted = Class.new(StandardError)
    interrupts = 0
    serializer = Class.new do
      define_singleton_method(:dump) { |value| Marshal.dump(value) }
      define_singleton_method(:load) do |bytes|
        Thread.new(Thread.current) { |thread| thread.raise(interrupted) }.join if (interrupts -= 1) >= 0
        Marshal.load(bytes)
      end
    end
    cache = client(serializer: serializer)
    cache.set("key", [1])
    interrupts = 2
    assert_raises(interrupted) { cache.get("key") }
    assert_at_rest(cache)
    assert_equal [1], cache.get("key")
  end

  # Neither JSON.load's extensions of JSON, nor (before json 3) objects of a class that the bytes name.
  def test_the_json_serializer_reads_only_json
    require "json/add/range"
    cache = client(serializer: :json)
    value = {"json_class" => "Range", "a" => [1, 3, false]}
    cache.set("key", value)
    assert_equal value, cache.get("key")
    ["NaN", "", "{"].each do |bytes|
      cache.send(:store, "key", bytes, Heddle::Memcached::Codec::SERIALIZED, nil, "S", nil)
      assert_raises(Heddle::Memcached::DecodeError, bytes.inspect) { cache.get("key") }
    end
    assert_raises(Heddle::Memcached::EncodeError) { cache.set("key", Float::NAN) }
  end

  def test_values_that_cannot_be_read_or_written
    cache = client(serializer: Failing.new)
    assert_raises(Heddle::Memcached::EncodeError) { cache.set("key", 1) }
    writer = client
    writer.set("key", [1])
    error = assert_raises(Heddle::Memcached::DecodeError) { cache.get("key") }
    assert_includes error.message, "no load"
    assert_raises(Heddle::Memcached::DecodeError) { cache.get_multi("key") }
    writer.set("compressed", "x" * 10_000)
    assert_equal Heddle::Memcached::Codec::COMPRESSED,
      writer.get_entry("compressed", raw: true).flags & Heddle::Memcached::Codec::COMPRESSED
    writer.append("compressed", "?")
    broken = writer.get("compressed", raw: true)
    writer.send(:store, "compressed", broken.byteslice(0, 8), 2, nil, "S", nil)
    assert_raises(Heddle::Memcached::DecodeError) { writer.get("compressed") }
    assert_at_rest(writer)
    assert_equal [1], writer.get("key")
  end

  def test_a_programs_own_compressor
    cache = client(compressor: Reverser, min_compress_bytes: 4)
    cache.set("key", "abcdef?")
    assert_equal ["?fedcb", 6], [cache.get("key", raw: true), cache.get_entry("key", raw: true).flags]
    plain = client(compressor: Reverser, compress: false)
    plain.set("plain", "abcdef?")
    assert_equal "abcdef?", plain.get("plain", raw: true)
    limited = Module.new do
      def self.compress(bytes) = "x"
      def self.decompress(bytes, max_bytes:) = max_bytes.to_s
    end
    cache = client(compressor: limited, min_compress_bytes: 1, max_decompressed_bytes: 77)
    cache.set("key", "abc")
    assert_equal "77", cache.get("key")
  end

  # 1 MiB on the wire could stand for 1 GiB.
  def test_decompression_stops_at_the_limit
    most = 1 << 20
    writer = client(max_value_bytes: nil)
    {most => nil, most + 1 => Heddle::Memcached::DecodeError,
     200 << 20 => Heddle::Memcached::DecodeError}.each do |size, error|
      writer.set("key", "\0".b * size)
      cache = client(max_decompressed_bytes: most)
      if error
        before = peak_memory
        assert_match(/beyond #{most} bytes/, assert_raises(error) { cache.get("key") }.message)
        assert_match(/beyond #{most} bytes/, assert_raises(error) { cache.get_multi("key") }.message)
        assert_operator peak_memory - before, :<, 64 << 10, "KiB"
      else
        assert_equal size, cache.get("key").bytesize
      end
      assert_at_rest(cache)
    end
    assert_equal 200 << 20, client(max_decompressed_bytes: 256 << 20).get("key").bytesize
  end

  def peak_memory
    File.read("/proc/self/status")[/VmHWM:\s+(\d+)/, 1].to_i
  end

  # Programs that have a pool need not be changed.
  def test_inside_of_a_connection_pool
    require "connection_pool"
    server = real_server
    [Heddle::Memcached, Heddle::Memcached::DalliCompatible].each do |klass|
      made = Queue.new
      pool = ConnectionPool.new(size: 2, timeout: 5) {
        klass.new("#{server.host}:#{server.port}").tap { |cache| made << cache }
      }
      threads = Array.new(6) do |i|
        Thread.new do
          Array.new(20) {
            pool.with { |cache| cache.with { |same| same.set("pooled #{i}", i) && same.get("pooled #{i}") } }
          }.uniq
        end
      end
      assert_equal Array.new(6) { |i| [i] }, threads.map(&:value)
      assert_operator made.size, :<=, 2
      pool.shutdown(&:close)
    end
  end
end

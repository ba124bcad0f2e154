# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/memcached_helpers"

# A collection at every allocation, and one that moves what may be moved: whatever C code holds of Ruby's must be known to it. In a
# process of its own, whose heap is small.
class MemcachedCollectionsTest < Minitest::Test
  include LoopHelpers

  def test_collections_at_every_allocation
    out = assert_child(<<~'RUBY', env: {"SERVER" => "127.0.0.1:#{MemcachedHelpers.server(:tcp).port}"}, timeout: 50)
      GC.auto_compact = true if GC.respond_to?(:auto_compact=)
      def stress(level)
        GC.stress = level
        yield
      ensure
        GC.stress = false
      end
      work = lambda do
        cache = Heddle::Memcached.new(ENV.fetch("SERVER"), timeout: 40)
        right = []
        stress(true) { cache.set("one", "v" * 1000) && right << (cache.get("one") == "v" * 1000) }
        stress(1) { cache.set("two", {x: [1, "two"]}) && right << (cache.get("two") == {x: [1, "two"]}) }
        keys = Array.new(8) { |index| "key#{index}" }
        stress(1) { cache.set_multi(keys.to_h { |key| [key, key * 10] }) }
        stress(1) { right << (cache.get_multi(*keys) == keys.to_h { |key| [key, key * 10] }) }
        stress(1) { cache.set("large", "x" * 100_000) && right << (cache.get("large").size == 100_000) }
        GC.compact if GC.respond_to?(:compact)
        right << (cache.get_multi("one", "none", "two").keys.sort == %w[one two])
        cache.close
        right.uniq
      end
      p Heddle.run(&work)
    RUBY
    assert_equal "[true]\n", out
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/collections"
require "support/memcached_helpers"

class MemcachedCollectionsTest < Minitest::Test
  include MemcachedHelpers
  include Collections

  def test_collections_at_every_allocation
    environment = {"SERVER" => "127.0.0.1:#{real_server.port}", "LIMIT" => stretched(40).to_s}
    assert_right_under_collections(<<~'RUBY', environment)
      cache = Heddle::Memcached.new(ENV.fetch("SERVER"), timeout: Float(ENV.fetch("LIMIT")))
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
      right
    RUBY
  end
end

# frozen_string_literal: true

require "test_helper"
require "shared/memcached_poison"

# Every answer is broken off at every byte, in the clear.
class MemcachedPoisonTest < Minitest::Test
  include MemcachedPoison
  extend MemcachedPoison::Definitions

  hard_deadline 150

  poison(tls: false)
end

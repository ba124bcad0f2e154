# frozen_string_literal: true

# bin/test: only with --all

require "test_helper"
require "shared/memcached_poison"

# The same within TLS.
class MemcachedPoisonTLSTest < Minitest::Test
  include MemcachedPoison
  extend MemcachedPoison::Definitions

  hard_deadline 150

  poison(tls: true)
end

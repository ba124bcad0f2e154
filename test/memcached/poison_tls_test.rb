# frozen_string_literal: true

require "test_helper"
require "shared/memcached_poison"

runs_on short: false

# The same within TLS.
class MemcachedPoisonTLSTest < Minitest::Test
  include MemcachedPoison
  extend MemcachedPoison::Definitions

  hard_deadline 150

  poison(tls: true)
end

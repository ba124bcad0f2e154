# frozen_string_literal: true

Compatibility.library "activesupport (RedisCacheStore)", gem: "activesupport", kind: "Caches, queues and locks" do
  peer :redis
  load do
    require "active_support"
    require "active_support/cache"
    require "active_support/cache/redis_cache_store"
  end
  connect { |peer| ActiveSupport::Cache::RedisCacheStore.new(url: "redis://#{peer}", timeout: 30, pool: false) }
  ask do |cache, number|
    cache.write("cache#{number}", number)
    cache.read("cache#{number}")
  end
end

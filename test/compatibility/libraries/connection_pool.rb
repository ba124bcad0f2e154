# frozen_string_literal: true

Compatibility.library "connection_pool", kind: "Caches, queues and locks" do
  peer :redis
  load do
    require "connection_pool"
    require "redis-client"
  end
  connect do |peer|
    ConnectionPool.new(size: 2) { RedisClient.new(host: peer.host, port: peer.port, timeout: 30) }
  end
  ask { |pool, number| pool.with { |redis| redis.call("ECHO", "heddle#{number}" * 40)[/\d+/].to_i } }
end

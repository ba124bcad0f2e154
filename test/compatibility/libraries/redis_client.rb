# frozen_string_literal: true

Compatibility.library "redis-client", kind: "Caches, queues and locks" do
  peer :redis
  load { require "redis-client" }
  connect { |peer| RedisClient.new(host: peer.host, port: peer.port, timeout: 30) }
  ask { |redis, number| redis.call("ECHO", "heddle#{number}" * 40)[/\d+/].to_i }
  close(&:close)
end

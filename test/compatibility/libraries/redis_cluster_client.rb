# frozen_string_literal: true

require_relative "../peers/redis_cluster"

Compatibility.library "redis-cluster-client", kind: "Caches, queues and locks" do
  peer Compatibility::Peers::RedisCluster
  load { require "redis-cluster-client" }
  connect do |peer|
    peer.announce(peer.port)
    RedisClient.cluster(nodes: ["redis://#{peer}"], timeout: 30).new_client
  end
  ask { |redis, number| redis.call("EVAL", "return string.rep(ARGV[1], 40)", 1, "key", "heddle#{number}")[/\d+/].to_i }
  close(&:close)
end

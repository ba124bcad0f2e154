# frozen_string_literal: true

Compatibility.library "redis", kind: "Caches, queues and locks" do
  peer :redis
  load { require "redis" }
  connect { |peer| Redis.new(host: peer.host, port: peer.port, timeout: 30) }
  ask { |redis, number| redis.echo("heddle#{number}" * 40)[/\d+/].to_i }
  close(&:close)
end

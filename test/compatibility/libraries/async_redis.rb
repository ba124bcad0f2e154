# frozen_string_literal: true

Compatibility.library "async-redis", kind: "Caches, queues and locks" do
  ruby "3.2" # the version for Ruby 3.1 uses connections again whatever has happened to them
  peer :redis
  load do
    require "heddle/async"
    require "async/redis"
  end
  connect do |peer|
    Async::Redis::Client.new(IO::Endpoint.tcp(peer.host, peer.port), protocol: Async::Redis::Protocol::RESP2)
  end
  ask { |redis, number| Sync { redis.call("ECHO", "heddle#{number}" * 40)[/\d+/].to_i } }
  close { |redis| Sync { redis.close } }
  only :at_once, :tasks, :cancel, "Async works in tasks: [coming from Async](../guides/coming_from_async.md)."
end

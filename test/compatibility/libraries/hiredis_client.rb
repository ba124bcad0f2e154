# frozen_string_literal: true

Compatibility.library "hiredis-client", kind: "Caches, queues and locks" do
  peer :redis
  load { require "hiredis-client" }
  connect { |peer| RedisClient.new(host: peer.host, port: peer.port, timeout: 30, driver: :hiredis) }
  ask { |redis, number| redis.call("ECHO", "heddle#{number}" * 40)[/\d+/].to_i }
  close(&:close)
  because :at_once, :tasks, :cancel, "It waits in C (`rb_thread_fd_select`), which stops all tasks of the " \
    "thread. Without it redis-client waits in Ruby; otherwise `Heddle.offload { … }`."
end

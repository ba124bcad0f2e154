# frozen_string_literal: true

Compatibility.library "suo", kind: "Caches, queues and locks" do
  peer :redis
  load { require "suo" }
  connect { |peer| Redis.new(host: peer.host, port: peer.port, timeout: 30) }
  ask do |redis, number|
    lock = Suo::Client::Redis.new("suo#{number}", client: redis)
    lock.lock { lock.key[/\d+/].to_i }
  end
  because :cancel, "It unlocks before it ends, and waits for that answer, too: only a deadline ends that wait."
end

# frozen_string_literal: true

Compatibility.library "redlock", kind: "Caches, queues and locks" do
  peer :redis
  load { require "redlock" }
  connect { |peer| Redlock::Client.new(["redis://#{peer}"], redis_timeout: 30) }
  ask do |redlock, number|
    lock = redlock.lock("redlock#{number}", 10_000)
    redlock.get_remaining_ttl_for_resource("redlock#{number}") && redlock.unlock(lock)
    lock.fetch(:resource)[/\d+/].to_i
  end
end

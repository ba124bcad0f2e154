# frozen_string_literal: true

Compatibility.library "sidekiq", kind: "Caches, queues and locks" do
  peer :redis
  load { require "sidekiq" }
  connect { |peer| Sidekiq::RedisConnection.create(url: "redis://#{peer}", timeout: 30, size: 2, logger: nil) }
  ask do |pool, number|
    Sidekiq::Client.new(pool: pool).push("class" => "Job", "args" => [number], "queue" => "heddle#{number}")
    Sidekiq.load_json(pool.with { |redis| redis.call("LPOP", "queue:heddle#{number}") }).fetch("args").first
  end
end

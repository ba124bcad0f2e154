# frozen_string_literal: true

Compatibility.library "resque", kind: "Caches, queues and locks" do
  peer :redis
  load { require "resque" }
  connect { |peer| Resque::DataStore.new(Redis.new(host: peer.host, port: peer.port, timeout: 30)) }
  ask do |store, number|
    store.push_to_queue("heddle#{number}", JSON.generate(args: [number]))
    JSON.parse(store.pop_from_queue("heddle#{number}")).fetch("args").first
  end
end

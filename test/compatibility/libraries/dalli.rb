# frozen_string_literal: true

Compatibility.library "dalli", kind: "Caches, queues and locks" do
  peer :memcached
  load { require "dalli" }
  connect { |peer| Dalli::Client.new(peer.to_s, socket_timeout: 30) }
  ask do |dalli, number|
    dalli.set("heddle#{number}", "heddle#{number}" * 40)
    dalli.get("heddle#{number}")[/\d+/].to_i
  end
  close(&:close)
end

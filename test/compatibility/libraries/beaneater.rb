# frozen_string_literal: true

require_relative "../peers/beanstalkd"

Compatibility.library "beaneater", kind: "Caches, queues and locks" do
  peer Compatibility::Peers::Beanstalkd
  load { require "beaneater" }
  connect { |peer| Beaneater.new(peer.to_s) }
  ask do |beaneater, number|
    tube = beaneater.tubes["heddle#{number}"]
    tube.put("heddle#{number}" * 40)
    tube.reserve.tap(&:delete).body[/\d+/].to_i
  end
  close(&:close)
end

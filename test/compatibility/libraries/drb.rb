# frozen_string_literal: true

require_relative "../peers/drb"

Compatibility.library "drb", kind: "RPC and WebSocket" do
  peer(Compatibility::Peers::DRbObjects) { [] }
  load { require "drb" }
  connect { |peer| DRbObject.new_with_uri("druby://#{peer}") }
  ask { |array, number| array.push("heddle#{number}" * 40).last[/\d+/].to_i }
end

# frozen_string_literal: true

require_relative "../peers/drb"

Compatibility.library "rinda", kind: "RPC and WebSocket" do
  peer Compatibility::Peers::DRbObjects do
    require "rinda/tuplespace"
    Rinda::TupleSpace.new
  end
  load { require "rinda/rinda" }
  connect { |peer| Rinda::TupleSpaceProxy.new(DRbObject.new_with_uri("druby://#{peer}")) }
  ask do |space, number|
    space.write(["heddle", number, "x" * 400])
    space.read(["heddle", number, nil])[1]
  end
end

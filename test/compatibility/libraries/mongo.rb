# frozen_string_literal: true

require_relative "../peers/mongo"

Compatibility.library "mongo", kind: "Databases and ORMs" do
  peer Compatibility::Peers::Mongo
  load { require "mongo" }
  connect do |peer|
    Mongo::Logger.level = :fatal
    Mongo::Client.new([peer.to_s], database: "heddle", connect: :direct, socket_timeout: 30, max_pool_size: 1,
      heartbeat_frequency: 30)
  end
  ask { |mongo, number| mongo.database.command(ping: 1, comment: "heddle#{number}").first["comment"][/\d+/].to_i }
  close(&:close)
end

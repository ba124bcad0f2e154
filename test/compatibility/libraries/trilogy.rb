# frozen_string_literal: true

Compatibility.library "trilogy", kind: "Databases and ORMs" do
  peer :mariadb
  load { require "trilogy" }
  connect { |peer| Trilogy.new(host: peer.host, port: peer.port, username: peer.username, password: peer.password) }
  ask { |trilogy, number| trilogy.query("SELECT #{number}, repeat('x', 500)").rows.first.first }
  close(&:close)
end

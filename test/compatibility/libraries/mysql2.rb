# frozen_string_literal: true

Compatibility.library "mysql2", kind: "Databases and ORMs" do
  peer :mariadb
  load do
    require "mysql2"
    require "heddle/mysql2"
  end
  connect do |peer|
    Mysql2::Client.new(host: peer.host, port: peer.port, username: peer.username, password: peer.password)
  end
  ask { |mysql, number| mysql.query("SELECT #{number} AS number, repeat('x', 500)").first.fetch("number") }
  close(&:close)
end

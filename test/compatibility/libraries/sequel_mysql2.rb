# frozen_string_literal: true

Compatibility.library "sequel (mysql2)", gem: "sequel", kind: "Databases and ORMs" do
  peer :mariadb
  load do
    require "sequel"
    require "heddle/sequel"
    require "heddle/mysql2"
  end
  connect do |peer|
    Sequel.connect(adapter: "mysql2", host: peer.host, port: peer.port, user: peer.username, password: peer.password,
      database: peer.database)
  end
  ask { |sequel, number| sequel.fetch("SELECT #{number} AS number, repeat('x', 500)").first.fetch(:number) }
  close(&:disconnect)
end

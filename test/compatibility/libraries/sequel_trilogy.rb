# frozen_string_literal: true

Compatibility.library "sequel (trilogy)", gem: "sequel", kind: "Databases and ORMs" do
  peer :mariadb
  load do
    require "sequel"
    require "heddle/sequel"
  end
  connect do |peer|
    Sequel.connect(adapter: "trilogy", host: peer.host, port: peer.port, user: peer.username, password: peer.password,
      database: peer.database)
  end
  ask { |sequel, number| sequel.fetch("SELECT #{number} AS number, repeat('x', 500)").first.fetch(:number) }
  close(&:disconnect)
end

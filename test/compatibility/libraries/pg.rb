# frozen_string_literal: true

Compatibility.library "pg", kind: "Databases and ORMs" do
  peer :postgresql
  load { require "pg" }
  connect do |peer|
    PG.connect(host: peer.host, port: peer.port, user: peer.username, password: peer.password, dbname: peer.database)
  end
  ask { |pg, number| pg.exec_params("SELECT $1::int, repeat('x', 500)", [number]).getvalue(0, 0).to_i }
  close(&:close)
end

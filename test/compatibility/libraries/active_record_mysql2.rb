# frozen_string_literal: true

require_relative "../records"

Compatibility.library "activerecord (mysql2)", gem: "activerecord", kind: "Databases and ORMs" do
  peer :mariadb
  load do
    Compatibility::Records.load
    require "heddle/mysql2"
  end
  connect { |peer| Compatibility::Records.connect(peer, "mysql2") }
  ask do |records, number|
    records.with_connection { |connection| connection.select_rows("SELECT #{number}, repeat('x', 500)").first.first }
  end
end

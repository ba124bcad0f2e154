# frozen_string_literal: true

require_relative "../records"

Compatibility.library "activerecord (trilogy)", gem: "activerecord", kind: "Databases and ORMs" do
  peer :mariadb
  load do
    Compatibility::Records.load
  end
  connect { |peer| Compatibility::Records.connect(peer, "trilogy") }
  ask do |records, number|
    records.with_connection { |connection| connection.select_rows("SELECT #{number}, repeat('x', 500)").first.first }
  end
end

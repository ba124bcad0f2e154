# frozen_string_literal: true

require_relative "../records"
require_relative "../reasons"

Compatibility.library "activerecord (pg)", gem: "activerecord", kind: "Databases and ORMs" do
  peer :postgresql
  load do
    Compatibility::Records.load
  end
  connect { |peer| Compatibility::Records.connect(peer, "postgresql") }
  ask do |records, number|
    records.with_connection { |connection| connection.select_rows("SELECT #{number}, repeat('x', 500)").first.first }
  end
  because :tasks, :threads, :cancel, Compatibility::Reasons::CANCELLED_QUERY
end

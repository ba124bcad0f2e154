# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "sequel (pg)", gem: "sequel", kind: "Databases and ORMs" do
  peer :postgresql
  load do
    require "sequel"
    require "heddle/sequel"
  end
  connect do |peer|
    Sequel.connect(adapter: "postgres", host: peer.host, port: peer.port, user: peer.username, password: peer.password,
      database: peer.database)
  end
  ask { |sequel, number| sequel.fetch("SELECT #{number} AS number, repeat('x', 500)").first.fetch(:number) }
  close(&:disconnect)
  because :tasks, :threads, :cancel, Compatibility::Reasons::CANCELLED_QUERY
end

# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "rom-sql", kind: "Databases and ORMs" do
  ruby "3.2" # Ruby 3.1.2 refuses the syntax of rom-core
  peer :postgresql
  load do
    require "rom-sql"
    require "heddle/sequel"
  end
  connect do |peer|
    ROM::SQL::Gateway.new("postgres://#{peer.username}:#{peer.password}@#{peer}/#{peer.database}")
  end
  ask do |gateway, number|
    gateway.connection.fetch("SELECT #{number} AS number, repeat('x', 500)").first.fetch(:number)
  end
  close(&:disconnect)
  because :tasks, :threads, :cancel, Compatibility::Reasons::CANCELLED_QUERY
end

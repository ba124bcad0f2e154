# frozen_string_literal: true

Compatibility.library "docker-api", kind: "Infrastructure" do
  peer(:http) { |request| {Id: request.number.to_s} }
  load { require "docker-api" }
  connect { |peer| Docker::Connection.new("tcp://#{peer}", {}) }
  ask { |docker, number| Docker::Container.get("heddle#{number}", {}, docker).id.to_i }
end

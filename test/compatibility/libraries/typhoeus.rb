# frozen_string_literal: true

Compatibility.library "typhoeus", kind: "HTTP clients" do
  peer :http
  load { require "typhoeus" }
  connect(&:url)
  ask { |url, number| JSON.parse(Typhoeus.get("#{url}/heddle#{number}").body).fetch("number") }
  because :at_once, :tasks, :threads, :cancel,
    "It waits in C, and lets neither tasks nor deadlines in " \
    "([ethon #211](https://github.com/typhoeus/ethon/issues/211)): call it in `Heddle.offload`."
end

Compatibility.library "typhoeus in Heddle.offload", gem: "typhoeus", kind: "HTTP clients" do
  peer :http
  load { require "typhoeus" }
  connect(&:url)
  ask do |url, number|
    body = Heddle.offload { Typhoeus.get("#{url}/heddle#{number}").body }
    JSON.parse(body).fetch("number")
  end
  because :tasks, :cancel,
    "An offloaded block has a second to end (`Heddle::Offload::GRACE`): then the task goes on without it."
  because :threads, "Without a scheduler `Heddle.offload` calls its block itself."
end

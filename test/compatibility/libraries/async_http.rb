# frozen_string_literal: true

Compatibility.library "async-http", kind: "HTTP clients" do
  peer :http
  load do
    require "heddle/async"
    require "async/http/internet"
  end
  connect { |peer| [Async::HTTP::Internet.new, peer.url] }
  ask do |(internet, url), number|
    Sync { JSON.parse(internet.get("#{url}/heddle#{number}", &:read)).fetch("number") }
  end
  close { |internet, _| Sync { internet.close } }
end

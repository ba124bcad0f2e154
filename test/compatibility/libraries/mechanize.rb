# frozen_string_literal: true

Compatibility.library "mechanize", kind: "HTTP clients" do
  peer(:http) do |request|
    [200, {"Content-Type" => "text/html"}, "<html><title>#{request.number}</title></html>"]
  end
  load { require "mechanize" }
  connect { |peer| [Mechanize.new, peer.url] }
  ask { |(agent, url), number| agent.get("#{url}/heddle#{number}").title.to_i }
  close { |agent, _| agent.shutdown }
end

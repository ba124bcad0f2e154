# frozen_string_literal: true

Compatibility.library "spidr", kind: "HTTP clients" do
  peer(:http) { |request| [200, {"Content-Type" => "text/html"}, "<title>#{request.number}</title>"] }
  load { require "spidr" }
  connect(&:url)
  ask { |url, number| Spidr::Agent.new.get_page(URI("#{url}/heddle#{number}")).title.to_i }
end

# frozen_string_literal: true

Compatibility.library "activeresource", kind: "REST mappers" do
  peer(:http) { |request| {id: request.number} }
  load { require "active_resource" }
  connect { |peer| Class.new(ActiveResource::Base) { self.site, self.element_name = peer.url, "thing" } }
  ask { |things, number| things.find("heddle#{number}").id }
end

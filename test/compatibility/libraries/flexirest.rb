# frozen_string_literal: true

Compatibility.library "flexirest", kind: "REST mappers" do
  peer(:http) { |request| {number: request.number} }
  load { require "flexirest" }
  connect do |peer|
    Class.new(Flexirest::Base) do
      base_url peer.url
      get :find, "/things/:id"
    end
  end
  ask { |things, number| things.find("heddle#{number}").number }
end

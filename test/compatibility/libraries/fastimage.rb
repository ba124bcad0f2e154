# frozen_string_literal: true

Compatibility.library "fastimage", kind: "HTTP clients" do
  # It reads no more of an image than it needs: the number comes late.
  peer(:http) do |request|
    image = %(<svg class="#{"a" * 1000}" width="#{request.number}" height="1"></svg>)
    [200, {"Content-Type" => "image/svg+xml"}, image]
  end
  load { require "fastimage" }
  connect(&:url)
  ask { |url, number| FastImage.size("#{url}/heddle#{number}", raise_on_failure: true).first }
end

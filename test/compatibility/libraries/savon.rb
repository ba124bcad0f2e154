# frozen_string_literal: true

Compatibility.library "savon", kind: "HTTP clients" do
  peer(:http) do |request|
    [200, {"Content-Type" => "text/xml"}, <<~XML]
      <soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/">
        <soap:Body><answer>#{request.number}</answer></soap:Body>
      </soap:Envelope>
    XML
  end
  load { require "savon" }
  connect { |peer| Savon.client(endpoint: peer.url, namespace: "urn:heddle", log: false) }
  ask { |soap, number| soap.call(:ask, message: {question: "heddle#{number}"}).body.fetch(:answer).to_i }
end

# frozen_string_literal: true

Compatibility.library "xmlrpc", kind: "HTTP clients" do
  peer(:http) do |request|
    value = "<value><int>#{request.number}</int></value>"
    [200, {"Content-Type" => "text/xml"}, <<~XML]
      <?xml version="1.0"?><methodResponse><params><param>#{value}</param></params></methodResponse>
    XML
  end
  load { require "xmlrpc/client" }
  connect { |peer| XMLRPC::Client.new(peer.host, "/", peer.port) }
  ask { |client, number| client.call("ask", "heddle#{number}") }
  because :afterwards, "After a cancel an open session gives the next request the answer to the cancelled one " \
                       "([net-http #157](https://github.com/ruby/net-http/issues/157)): `heddle/net_http` closes it."
end

# frozen_string_literal: true

Compatibility.library "trino-client", kind: "Search and databases over HTTP" do
  peer(:http) do |request|
    {id: "1", infoUri: "", stats: {state: "FINISHED"}, columns: [{name: "n", type: "bigint"}],
     data: [[request.number]]}
  end
  load { require "trino-client" }
  connect { |peer| Trino::Client.new(server: peer.to_s, user: "me", catalog: "c", schema: "s", http_timeout: 30) }
  ask { |trino, number| trino.run("select heddle#{number}").last.dig(0, 0) }
end

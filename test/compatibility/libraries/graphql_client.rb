# frozen_string_literal: true

Compatibility.library "graphql-client", kind: "HTTP clients" do
  peer(:http) { |request| {data: {number: request.number}} }
  load { require "graphql/client/http" }
  connect { |peer| GraphQL::Client::HTTP.new(peer.url) }
  ask do |http, number|
    document = Struct.new(:to_query_string).new("query { number }")
    http.execute(document: document, variables: {id: "heddle#{number}"}).dig("data", "number")
  end
end

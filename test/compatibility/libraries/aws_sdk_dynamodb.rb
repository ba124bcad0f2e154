# frozen_string_literal: true

Compatibility.library "aws-sdk-dynamodb", kind: "SDKs of services" do
  peer(:http) { |request| {Item: {id: {N: request.number.to_s}}} }
  load { require "aws-sdk-dynamodb" }
  connect do |peer|
    Aws::DynamoDB::Client.new(endpoint: peer.url, region: "us-east-1", retry_limit: 0,
      access_key_id: "key", secret_access_key: "secret")
  end
  ask { |dynamodb, number| dynamodb.get_item(table_name: "things", key: {"id" => "heddle#{number}"}).item["id"].to_i }
end

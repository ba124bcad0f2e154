# frozen_string_literal: true

Compatibility.library "aws-sdk-sqs", kind: "SDKs of services" do
  peer(:http) { |request| {QueueUrl: request.number.to_s} }
  load { require "aws-sdk-sqs" }
  connect do |peer|
    Aws::SQS::Client.new(endpoint: peer.url, region: "us-east-1", retry_limit: 0,
      access_key_id: "key", secret_access_key: "secret")
  end
  ask { |sqs, number| sqs.get_queue_url(queue_name: "heddle#{number}").queue_url.to_i }
end

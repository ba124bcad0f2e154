# frozen_string_literal: true

Compatibility.library "aws-sdk-s3", kind: "SDKs of services" do
  peer :http
  load { require "aws-sdk-s3" }
  connect do |peer|
    Aws::S3::Client.new(endpoint: peer.url, force_path_style: true, region: "us-east-1", retry_limit: 0,
      access_key_id: "key", secret_access_key: "secret")
  end
  ask { |s3, number| JSON.parse(s3.get_object(bucket: "bucket", key: "heddle#{number}").body.read).fetch("number") }
end

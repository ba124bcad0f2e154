# frozen_string_literal: true

Compatibility.library "azure-blob", kind: "SDKs of services" do
  peer :http
  load { require "azure_blob" }
  connect do |peer|
    AzureBlob::Client.new(account_name: "name", access_key: "c2VjcmV0", container: "things", host: peer.url)
  end
  ask { |azure, number| JSON.parse(azure.get_blob("heddle#{number}")).fetch("number") }
end

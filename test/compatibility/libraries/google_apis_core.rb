# frozen_string_literal: true

Compatibility.library "google-apis-core", kind: "SDKs of services" do
  peer :http
  load do
    require "google/apis/core/base_service"
    require "google/apis/core/api_command"
  end
  connect { |peer| Google::Apis::Core::BaseService.new("#{peer.url}/", "") }
  ask { |google, number| JSON.parse(google.http(:get, "#{google.root_url}heddle#{number}")).fetch("number") }
end

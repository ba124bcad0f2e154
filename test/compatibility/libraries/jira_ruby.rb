# frozen_string_literal: true

Compatibility.library "jira-ruby", kind: "SDKs of services" do
  peer(:http) { |request| {id: request.number.to_s, fields: {}} }
  load { require "jira-ruby" }
  connect do |peer|
    JIRA::Client.new(site: peer.url, context_path: "", use_ssl: false, auth_type: :basic,
      username: "me", password: "secret")
  end
  ask { |jira, number| jira.Issue.find("heddle#{number}").id.to_i }
end

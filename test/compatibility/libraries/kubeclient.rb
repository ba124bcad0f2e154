# frozen_string_literal: true

Compatibility.library "kubeclient", kind: "Infrastructure" do
  peer(:http) do |request|
    if request.path.end_with?("/v1")
      {resources: [{name: "pods", kind: "Pod", namespaced: true}]}
    else
      {kind: "Pod", number: request.number}
    end
  end
  load { require "kubeclient" }
  connect { |peer| Kubeclient::Client.new("#{peer.url}/api", "v1") }
  ask { |kubernetes, number| kubernetes.get_pod("heddle#{number}", "default").number }
end

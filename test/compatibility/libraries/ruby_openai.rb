# frozen_string_literal: true

Compatibility.library "ruby-openai", kind: "Models (LLM)" do
  peer(:http) do |request|
    {id: "1", object: "chat.completion", created: 1, model: "m", choices: [
      {index: 0, finish_reason: "stop", message: {role: "assistant", content: request.number.to_s}}
    ]}
  end
  load { require "openai" }
  connect { |peer| OpenAI::Client.new(access_token: "key", uri_base: peer.url) }
  ask do |openai, number|
    openai.chat(parameters: {model: "m", messages: [{role: "user", content: "heddle#{number}"}]})
      .dig("choices", 0, "message", "content").to_i
  end
end

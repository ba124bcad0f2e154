# frozen_string_literal: true

Compatibility.library "anthropic", kind: "Models (LLM)" do
  ruby "3.2" # older ones get another library of this name
  peer(:http) do |request|
    {id: "1", type: "message", role: "assistant", model: "m", stop_reason: "end_turn",
     content: [{type: "text", text: request.number.to_s}], usage: {input_tokens: 1, output_tokens: 1}}
  end
  load { require "anthropic" }
  connect { |peer| Anthropic::Client.new(api_key: "key", base_url: peer.url, max_retries: 0) }
  ask do |anthropic, number|
    anthropic.messages.create(model: "m", max_tokens: 9, messages: [{role: "user", content: "heddle#{number}"}])
      .content.first.text.to_i
  end
end

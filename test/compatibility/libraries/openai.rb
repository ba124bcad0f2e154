# frozen_string_literal: true

Compatibility.library "openai", kind: "Models (LLM)" do
  ruby "3.2" # older ones get another library of this name
  peer(:http) do |request|
    {id: "1", object: "chat.completion", created: 1, model: "m", choices: [
      {index: 0, finish_reason: "stop", message: {role: "assistant", content: request.number.to_s}}
    ]}
  end
  load { require "openai" }
  connect { |peer| OpenAI::Client.new(api_key: "key", base_url: peer.url, max_retries: 0) }
  ask do |openai, number|
    openai.chat.completions.create(model: "m", messages: [{role: "user", content: "heddle#{number}"}])
      .choices.first.message.content.to_i
  end
end

# frozen_string_literal: true

Compatibility.library "ruby_llm", kind: "Models (LLM)" do
  ruby "3.2"
  peer(:http) do |request|
    {id: "1", output: [{type: "message", content: [{type: "output_text", text: request.number.to_s}]}]}
  end
  load { require "ruby_llm" }
  connect do |peer|
    RubyLLM.context do |config|
      config.openai_api_key = "key"
      config.openai_api_base = peer.url
    end
  end
  ask do |llm, number|
    llm.chat(model: "m", provider: :openai, assume_model_exists: true).ask("heddle#{number}").content.to_i
  end
end

# frozen_string_literal: true

Compatibility.library "curb", kind: "HTTP clients" do
  peer :http
  load { require "curb" }
  connect { |peer| [Curl::Easy.new, peer.url] }
  ask do |(curl, url), number|
    curl.url = "#{url}/heddle#{number}"
    curl.perform
    JSON.parse(curl.body_str).fetch("number")
  end
  because :afterwards, "After a deadline in a plain thread the next `perform` of the same `Curl::Easy` goes on with " \
                       "the interrupted request: call its `close` first. In tasks it can be used once the request " \
                       "has ended."
end

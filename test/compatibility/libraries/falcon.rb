# frozen_string_literal: true

require_relative "../web_server"

Compatibility.library "falcon (heddle/async)", gem: "falcon", kind: "Web servers" do
  peer(:scripted) { |socket| socket.puts(socket.gets) }
  connect do |peer|
    Compatibility::WebServer.of(peer) do
      FalconProcess.new("serve", "--count", "1", "--bind", "http://127.0.0.1:PORT", preload: "heddle/async",
        files: Compatibility::WebServer.application(peer))
    end
  end
  ask { |server, number| Compatibility::WebServer.ask(server, number) }
  close(&:end)
  only :at_once, "Ten requests to one server, each of which waits for another server: " \
    "[coming from Async](../guides/coming_from_async.md#falcon)."
end

# frozen_string_literal: true

require_relative "../web_server"

Compatibility.library "puma (plugin :heddle)", gem: "puma", kind: "Web servers" do
  peer(:scripted) { |socket| socket.puts(socket.gets) }
  connect do |peer|
    Compatibility::WebServer.of(peer) do
      PumaProcess.new(fibers: 20, files: Compatibility::WebServer.application(peer))
    end
  end
  ask { |server, number| Compatibility::WebServer.ask(server, number) }
  close(&:end)
  only :at_once, "Ten requests to one server, each of which waits for another server: " \
    "[Rails on Puma](../guides/puma.md)."
end

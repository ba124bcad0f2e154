# frozen_string_literal: true

# async-http's server in a task, on a port of its own.
module AsyncHTTPServer
  module_function

  # Yields the endpoint, and stops the server when the block has ended.
  #
  # @param app [#call] gets each request, and gives the response
  # @param protocol [String] "http/1.1" or "h2", without TLS
  def run(task, app, protocol = "http/1.1")
    require "async/http/server"
    require "async/http/endpoint"
    socket = TCPServer.new("127.0.0.1", 0)
    port = socket.local_address.ip_port
    socket.close
    chosen = (protocol == "h2") ? Async::HTTP::Protocol::HTTP2 : Async::HTTP::Protocol::HTTP11
    endpoint = Async::HTTP::Endpoint.parse("http://127.0.0.1:#{port}", protocol: chosen)
    running = task.async { Async::HTTP::Server.new(app, endpoint, protocol: chosen, scheme: "http").run }
    yield endpoint
  ensure
    running&.stop
  end
end

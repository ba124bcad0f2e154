# frozen_string_literal: true

# Answers each request after one second: the server of "Ruby Networking on Steroids" (by Mohammad A. Ali, 2008), on
# EventMachine (gem install eventmachine). For examples/neverblock_client.rb.

require "eventmachine"

class Server < EM::Connection
  # handle requests here
  def receive_data(data)
    # set the response to be sent after 1 second
    EM.add_timer(1) do
      send_data "HTTP/1.1 200 OK\r\n\r\ndone"
      close_connection_after_writing
    end
  end
end

EM.run do
  EM.start_server("127.0.0.1", Integer(ARGV.fetch(0, 8080)), Server)
  puts "ready"
  $stdout.flush
end

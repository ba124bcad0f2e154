# frozen_string_literal: true

# Twenty GETs of one second each, in about one second: the client of "Ruby Networking on Steroids", the post of 2008
# that showed NeverBlock's sockets (by Mohammad A. Ali, with Ruby 1.9's fibers and EventMachine). The calls are those of
# the post; Net::HTTP and the sockets are Ruby's own now.
#
#   ruby examples/neverblock_server.rb &
#   ruby -Ilib examples/neverblock_client.rb

require "heddle/neverblock"
require "net/http"

started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
EM.run do
  @pool = NB::FiberPool.new(20)
  20.times do
    @pool.spawn do
      url = URI.parse(ARGV.fetch(0, "http://localhost:8080"))
      res = Net::HTTP.start(url.host, url.port) { |http| http.get("/") }
      puts res.body
    end
  end
end
printf("%.1f seconds\n", Process.clock_gettime(Process::CLOCK_MONOTONIC) - started)

# frozen_string_literal: true

require "net/http"
require_relative "../heddle"

module Heddle
  # Each request of Net::HTTP that is sent within a deadline tells its server how long its caller still waits: by the
  # header +Request-Timeout+, in seconds. A server with {Rack::Deadline} and <tt>headers: true</tt> stops then, too. A
  # request that has such a header keeps its own.
  #
  # @example
  #   require "heddle/deadline_header"
  #   Heddle.deadline(2) { Net::HTTP.get(URI("http://127.0.0.1:3000/")) } # Request-Timeout: 1.998
  module DeadlineHeader
    NAME = "Request-Timeout"
    private_constant :NAME

    # @see Net::HTTP#request
    def request(request, body = nil, &block)
      seconds = Heddle.remaining
      return super if seconds.nil? || request.key?(NAME)

      request[NAME] = format("%.3f", seconds)
      begin
        super
      ensure
        request.delete(NAME) # the next one that sends it may have another deadline
      end
    end
  end
  ::Net::HTTP.prepend(DeadlineHeader)
end

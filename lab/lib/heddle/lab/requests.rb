# frozen_string_literal: true

require "rbconfig"
require "heddle/lab/affinity"

module Heddle
  module Lab
    # A process that makes requests to a server of the measured process.
    class Requests
      MAIN = File.expand_path("requests_main.rb", __dir__)
      private_constant :MAIN

      # @param body [String] of each answer
      # @param connections [Integer] each of which has one request at a time
      # @param core [Integer, nil] the core to pin it to
      def initialize(host, port, path, body, connections, core: nil)
        @process = IO.popen([*Affinity.prefix(core), RbConfig.ruby, "--disable=gems", MAIN, host, port.to_s, path, body,
          connections.to_s], "r+")
      end

      # Makes requests, and waits until all are answered.
      #
      # @param count [Integer]
      # @return [Hash{String => Float}] seconds that they took: "median" and "p99"
      def make(count)
        @process.puts(count)
        answer = @process.gets or raise "the process that makes the requests has ended"
        wrong, median, p99 = answer.split
        raise "#{wrong} of #{count} answers were wrong" unless wrong == "0"

        {"median" => median.to_f, "p99" => p99.to_f}
      end
    end
  end
end

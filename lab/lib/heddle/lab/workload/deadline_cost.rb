# frozen_string_literal: true

require "heddle/lab/workload"
require "socket"

module Heddle
  module Lab
    class Workload
      # Blocks with a limit that they do not reach.
      class DeadlineCost < Workload
        for_bench "deadline_cost"

        KEY = "heddle:deadline_cost"
        VALUE = "x" * 100
        REPLY = "VALUE #{KEY} 0 100\r\n#{VALUE}\r\nEND\r\n"
        WITHIN_ONE = 1000 # sleeps
        LIMIT = 10 # seconds, which no block reaches on a busy machine either
        private_constant :KEY, :VALUE, :REPLY, :WITHIN_ONE, :LIMIT

        # @see Workload#prepare
        def prepare
          require "timeout"
          versions = load_heddle
          require "heddle/timeout" if @kind == "heddle_timeout"
          versions + ["timeout #{Object.const_defined?("Timeout::VERSION") ? ::Timeout::VERSION : "of Ruby"}"]
        end

        # @see Workload#perform
        def perform(meter)
          work = -> { send(@params.fetch("work"), meter, @params.fetch("count")) }
          (@params.fetch("place") == "task") ? Heddle.run(&work) : work.call
        end

        private

        def limit(&block)
          case @kind
          when "none" then yield
          when "deadline" then Heddle.deadline(LIMIT, &block)
          else ::Timeout.timeout(LIMIT, &block)
          end
        end

        # Each has its block inline, so that no further call is measured.
        def nothing(meter, count)
          measured(meter, count) { limit {} }
        end

        def operations(meter, count)
          measured(meter, count / WITHIN_ONE) { limit { WITHIN_ONE.times { sleep(0) } } }
          meter.measures["operations"] *= WITHIN_ONE
        end

        def get(meter, count)
          socket = TCPSocket.new(@params.fetch("host"), @params.fetch("port"))
          socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
          socket.write("set #{KEY} 0 0 100\r\n#{VALUE}\r\n")
          raise "memcached does not store" unless socket.gets == "STORED\r\n"

          request = "get #{KEY}\r\n"
          buffer = +""
          measured(meter, count) do
            limit do
              socket.write(request)
              socket.readpartial(4096, buffer)
            end
            raise "wrong reply" unless buffer == REPLY
          end
        ensure
          socket&.close
        end

        def measured(meter, count)
          (count / 10).times { yield }
          meter.measure do
            i = 0
            while i < count
              yield
              i += 1
            end
            {"operations" => count}
          end
        end
      end
    end
  end
end

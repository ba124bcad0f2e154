# frozen_string_literal: true

require "heddle/lab/workload"
require "socket"

module Heddle
  module Lab
    class Workload
      # One get from memcached after another.
      class Stream < Workload
        for_bench "stream"

        KEY = "heddle:stream"
        VALUE = "x" * 100
        REQUEST = "get #{KEY}\r\n"
        REPLY = "VALUE #{KEY} 0 100\r\n#{VALUE}\r\nEND\r\n"
        WARM_UP = 1000 # gets
        private_constant :KEY, :VALUE, :REQUEST, :REPLY, :WARM_UP

        # @see Workload#prepare
        def prepare
          require "timeout"
          load_heddle
        end

        # @see Workload#perform
        def perform(meter)
          @socket = TCPSocket.new(@params.fetch("host"), @params.fetch("port"))
          @socket.setsockopt(:TCP, :NODELAY, true)
          @socket.write("set #{KEY} 0 0 100\r\n#{VALUE}\r\n")
          raise "memcached does not store" unless @socket.gets == "STORED\r\n"

          @stream = Heddle::Stream.new(@socket, timeout: (1 if @kind == "stream_timeout")) if @kind.start_with?("stream")
          case @params.fetch("place")
          when "thread" then count(meter)
          when "task" then Heddle.run { count(meter) }
          else beside(meter)
          end
        ensure
          @socket&.close
        end

        private

        def get(buffer)
          case @kind
          when "raw" then by_socket(buffer)
          when "select" then by_select(buffer)
          when "timeout" then ::Timeout.timeout(1) { by_socket(buffer) }
          when "stream_exchange" then @stream.exchange(timeout: 1) { by_stream(buffer) }
          when "stream_deadline" then Heddle.deadline(1) { by_stream(buffer) }
          else by_stream(buffer)
          end
          raise "wrong reply" unless buffer == REPLY
        end

        def by_socket(buffer)
          @socket.write(REQUEST)
          @socket.readpartial(4096, buffer)
        end

        def by_select(buffer)
          @socket.write(REQUEST)
          raise "late" unless IO.select([@socket], nil, nil, 1)

          @socket.read_nonblock(4096, buffer)
        end

        def by_stream(buffer)
          @stream.write(REQUEST)
          @stream.readpartial(4096, buffer)
        end

        def count(meter)
          buffer = +""
          WARM_UP.times { get(buffer) }
          meter.measure do
            count = @params.fetch("count")
            i = 0
            while i < count
              get(buffer)
              i += 1
            end
            {"operations" => count}
          end
        end

        def beside(meter)
          buffer = +""
          get(buffer)
          done = false
          computing = Thread.new { nil until done }
          get(buffer)
          meter.measure do
            count = 0
            ending = Process.clock_gettime(Process::CLOCK_MONOTONIC) + @params.fetch("seconds")
            while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ending
              get(buffer)
              count += 1
            end
            {"operations" => count, "beside" => 1}
          end
        ensure
          done = true
          computing&.join
        end
      end
    end
  end
end

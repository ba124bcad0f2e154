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
          @kind.start_with?("io_stream") ? [load_gem("io-stream", "io/stream"), *load_async] : load_heddle
        end

        # @see Workload#perform
        def perform(meter)
          @socket = TCPSocket.new(@params.fetch("host"), @params.fetch("port"))
          @socket.setsockopt(:TCP, :NODELAY, true)
          @socket.write("set #{KEY} 0 0 100\r\n#{VALUE}\r\n")
          raise "memcached does not store" unless @socket.gets == "STORED\r\n"

          if @kind.start_with?("stream")
            @stream = Heddle::Stream.new(@socket, timeout: (1 if @kind == "stream_timeout"))
          end
          @stream = IO.Stream(@socket) if @kind.start_with?("io_stream")
          case @params.fetch("place")
          when "thread" then count(meter)
          when "task" then in_task { count(meter) }
          else beside(meter)
          end
        ensure
          @socket&.close
        end

        private

        def in_task(&)
          @kind.start_with?("io_stream") ? Sync(&) : Heddle.run(&)
        end

        def get(buffer)
          right = case @kind
          when "select" then by_select(buffer)
          when "timeout" then ::Timeout.timeout(1) { ask(buffer) }
          when "io_stream_timeout" then Async::Task.current.with_timeout(1) { ask(buffer) }
          when "stream_exchange" then @stream.exchange(timeout: 1) { ask(buffer) }
          when "stream_deadline" then Heddle.deadline(1) { ask(buffer) }
          else ask(buffer)
          end
          raise "wrong reply" unless right
        end

        # Whether the reply is the right one.
        def ask(buffer)
          return ask_io_stream if @kind.start_with?("io_stream")

          from = @stream || @socket
          from.write(REQUEST)
          return from.readpartial(4096, buffer) == REPLY unless @params["lines"]

          from.gets.end_with?(" 100\r\n") && from.read(102).start_with?(VALUE) && from.gets == "END\r\n"
        end

        def ask_io_stream
          @stream.write(REQUEST)
          @stream.flush
          return @stream.read_partial(4096) == REPLY unless @params["lines"]

          @stream.read_until("\r\n").end_with?(" 100") &&
            @stream.read_exactly(102).start_with?(VALUE) && @stream.read_until("\r\n") == "END"
        end

        def by_select(buffer)
          @socket.write(REQUEST)
          raise "late" unless IO.select([@socket], nil, nil, 1)

          @socket.read_nonblock(4096, buffer) == REPLY
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
            ending = Clock.now + @params.fetch("seconds")
            while Clock.now < ending
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

# frozen_string_literal: true

require "socket"
require "heddle/lab/workload"
require "heddle/lab/workload/async/http"

module Heddle
  module Lab
    class Workload
      # Work by Async's API, or by Heddle's own.
      class Async < Workload
        for_bench "async"
        include HTTP

        # @see Workload#prepare
        def prepare
          return load_heddle if @kind == "heddle"

          versions = load_async
          %w[semaphore barrier queue].each { |name| require "async/#{name}" }
          versions += prepare_http
          return versions if @kind == "async"

          [versions.first[/\A\S+ \S+/], *versions.drop(2), *load_loop]
        end

        # @see Workload#perform
        def perform(meter)
          world do
            count = @params.fetch("count")
            operation = "measure_#{@params.fetch("operation")}"
            send(operation, [count / 20, 100].max)
            meter.measure { {"operations" => send(operation, count)} }
          end
        end

        private

        def load_loop
          require "heddle/async"
          load_heddle
        end

        def world(&block)
          (@kind == "heddle") ? Heddle.run(&block) : Sync(&block)
        end

        def start(&block)
          (@kind == "heddle") ? Heddle.spawn(&block) : ::Async::Task.current.async(&block)
        end

        def within(seconds, &block)
          (@kind == "heddle") ? Heddle.deadline(seconds, &block) : ::Async::Task.current.with_timeout(seconds, &block)
        end

        def measure_empty(count)
          ended = 0
          count.times { start { ended += 1 } }
          sleep(0) until ended == count
          count
        end

        # A thousand at once.
        def measure_sleeping(count)
          (count / 100.0).ceil.clamp(1, 1000).then do |size|
            rounds = count / size
            rounds.times { Array.new(size) { start { sleep(0.001) } }.each(&:wait) }
            rounds * size
          end
        end

        def measure_ping_pong(count, &limit)
          limit ||= :call.to_proc
          pairs = Array.new(50) { UNIXSocket.pair }
          trips = [count / 100, 1].max
          tasks = pairs.flat_map do |near, far|
            [start do
              trips.times do
                near.write("ping")
                limit.call(-> { near.readpartial(64) })
              end
            end,
              start { trips.times { limit.call(-> { far.readpartial(64) }) && far.write("pong") } }]
          end
          tasks.each(&:wait)
          trips * 100
        ensure
          pairs&.flatten&.each(&:close)
        end

        def measure_timeouts(count)
          measure_ping_pong(count) { |read| within(5) { read.call } }
        end

        def measure_semaphore(count)
          semaphore = ::Async::Semaphore.new(10)
          Array.new(count) { semaphore.async { sleep(0) } }.each(&:wait)
          count
        end

        def measure_barrier(count)
          rounds = [count / 1000, 1].max
          rounds.times do
            barrier = ::Async::Barrier.new
            1000.times { barrier.async { sleep(0) } }
            barrier.wait
          end
          rounds * 1000
        end

        def measure_queue(count)
          queue = ::Async::Queue.new
          reader = start { count.times { queue.dequeue } }
          writer = start do
            count.times do |number|
              queue.enqueue(number)
              sleep(0) if (number % 10).zero?
            end
          end
          [reader, writer].each(&:wait)
          count
        end
      end
    end
  end
end

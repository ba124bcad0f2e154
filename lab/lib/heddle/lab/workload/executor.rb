# frozen_string_literal: true

require "heddle/lab/workload"

module Heddle
  module Lab
    class Workload
      # Blocks that are posted to an executor of concurrent-ruby from the main thread.
      class Executor < Workload
        for_bench "executor"

        WAIT = 0.1
        MOST_WAITING = 500
        private_constant :WAIT, :MOST_WAITING

        # @see Workload#prepare
        def prepare
          versions = [load_gem("concurrent-ruby", "concurrent")]
          return versions if @kind == "threads"

          versions += load_heddle
          require "heddle/executor"
          versions
        end

        # @see Workload#perform
        def perform(meter)
          @executor = if @kind == "threads"
            Concurrent::FixedThreadPool.new(@argument)
          else
            Heddle::Executor.new(fibers: @argument)
          end
          send("measure_#{@params.fetch("operation")}", meter)
        ensure
          @executor&.kill
        end

        private

        def measure_empty(meter)
          all(1000) {} # the threads
          meter.measure do
            count = @params["count"]
            {"operations" => count, "amount" => count / seconds { all(count) {} }}
          end
        end

        def measure_waiting(meter)
          all([@argument, 1000].min) {}
          wanted = @params["count"]
          count = [wanted, (@argument * @params["seconds"] / WAIT).ceil].min
          meter.measure do
            {"operations" => count, "amount" => seconds { all(count) { sleep(WAIT) } } * wanted / count}
          end
        end

        def measure_memory(meter)
          count = [@argument, MOST_WAITING].min
          all(1) {}
          GC.start
          before = Workload.memory("VmRSS")
          meter.measure do
            waiting = Concurrent::CountDownLatch.new(count)
            gate = Concurrent::Event.new
            ended = Concurrent::CountDownLatch.new(count)
            count.times do
              @executor.post do
                deep(@params["depth"]) do
                  waiting.count_down
                  gate.wait
                end
                ended.count_down
              end
            end
            waiting.wait
            sleep(0.2)
            grown = Workload.memory("VmRSS") - before
            gate.set
            ended.wait
            {"operations" => count, "amount" => grown / count.to_f}
          end
        end

        # As a job's stack is: calls with a few variables, blocks and ensure clauses.
        def deep(calls, &block)
          return yield if calls.zero?

          text = "call #{calls}"
          begin
            [text].each { deep(calls - 1, &block) }
          ensure
            text.clear
          end
        end

        # Posts the block so many times, and waits until it has run as often.
        def all(count)
          latch = Concurrent::CountDownLatch.new(count)
          count.times do
            @executor.post do
              yield
              latch.count_down
            end
          end
          latch.wait
        end

        def seconds
          began = Clock.now
          yield
          Clock.now - began
        end
      end
    end
  end
end

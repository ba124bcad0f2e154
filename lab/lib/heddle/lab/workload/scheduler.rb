# frozen_string_literal: true

require "io/wait"
require "socket"
require "heddle/lab/workload"

module Heddle
  module Lab
    class Workload
      # The cost of a fiber scheduler, through plain Ruby calls: Fiber.scheduler is the scheduler that is measured.
      class Scheduler < Workload
        for_bench "scheduler"

        # @see Workload#prepare
        def prepare
          pool = @params["operation"] == "resources" && @kind != "heddle"
          [*scheduler, *(load_gem("connection_pool") if pool)]
        end

        # @see Workload#perform
        def perform(meter) = send("measure_#{@params.fetch("operation")}", meter)

        private

        def scheduler
          case @kind
          when "heddle" then load_heddle
          when "async" then load_async
          when "carbon_fiber" then load_carbon_fiber
          when "uringmachine" then load_uringmachine
          else ["Thread"]
          end
        end

        # Runs the block where {#spawn} works, and returns when all spawned tasks have ended. An error in the block does
        # not wait for the tasks, which might wait for ever.
        def world(&work)
          block = lambda do |*|
            work.call
          rescue => error
            @deliver.call(Workload.failure(error))
          end
          case @kind
          when "heddle" then Heddle.run(&block)
          when "async" then Sync(&block)
          when "threads" then block.call
          else
            Thread.new do
              carbon = @kind == "carbon_fiber"
              Fiber.set_scheduler(carbon ? CarbonFiber::Scheduler.new : UM::FiberScheduler.new(UM.new))
              Fiber.schedule(&block)
            end.join
          end
        end

        def spawn(&block)
          (@kind == "threads") ? Thread.new(&block) : Fiber.schedule(&block)
        end

        # Spawns the blocks of a group and waits until all have ended, or one has failed.
        def group(blocks)
          done = Thread::Queue.new
          blocks.each do |block|
            spawn do
              block.call
              done << nil
            rescue => error
              done << error
            end
          end
          blocks.size.times { done.pop&.then { |error| raise error } }
        end

        # Does a small part of the work to warm up, then measures the whole. The block returns its number of operations.
        def warm_then_measure(meter, count)
          world do
            yield [count / 20, 100].max
            meter.measure { {"operations" => yield(count)} }
          end
        end

        def measure_ping_pong(meter)
          pairs = Array.new(@params["pairs"]) { UNIXSocket.pair }
          warm_then_measure(meter, @params["count"]) do |count|
            trips = [count / (2 * pairs.size), 1].max
            group(pairs.flat_map { |near, far| [-> { ping(near, trips) }, -> { pong(far, trips) }] })
            trips * 2 * pairs.size
          end
        end

        def ping(socket, trips)
          trips.times do
            socket.write("ping")
            raise "wrong answer" unless socket.readpartial(64) == "pong"
          end
        end

        def pong(socket, trips)
          trips.times do
            raise "wrong question" unless socket.readpartial(64) == "ping"

            socket.write("pong")
          end
        end

        def measure_queue(meter)
          warm_then_measure(meter, @params["count"]) do |count|
            there, back = Thread::Queue.new, Thread::Queue.new
            trips = count / 2
            ask = lambda do
              trips.times do |number|
                there << number
                back.pop
              end
            end
            group([ask, -> { trips.times { back << there.pop } }])
            trips * 2
          end
        end

        def measure_schedule(meter)
          warm_then_measure(meter, @params["count"]) do |count|
            ended = 0
            if @kind == "threads"
              count.times { Thread.new { ended += 1 }.join }
            else
              count.times { Fiber.schedule { ended += 1 } }
              sleep(0) until ended == count
            end
            count
          end
        end

        # Starts a task by the model's own method; if that is Fiber.schedule, it does the same as the case before.
        def measure_spawn(meter)
          return measure_schedule(meter) unless @kind == "heddle"

          warm_then_measure(meter, @params["count"]) do |count|
            ended = 0
            count.times { Heddle.spawn { ended += 1 } }
            sleep(0) until ended == count
            count
          end
        end

        # Durations from 10 to 500 ms that are not multiples of each other, so that hardly two end together.
        def measure_timers(meter)
          warm_then_measure(meter, @params["count"]) do |count|
            group(Array.new(count) { |i| -> { sleep(0.01 + (i * 7919 % 4901) / 1e4) } })
            count
          end
        end

        def measure_sleep_zero(meter)
          fibers = @params["fibers"]
          warm_then_measure(meter, @params["count"]) do |count|
            times = count / fibers
            group(Array.new(fibers) { -> { times.times { sleep(0) } } })
            times * fibers
          end
        end

        def measure_permits(meter)
          use = case @kind
          when "heddle" then Heddle::Semaphore.new(2).method(:acquire)
          when "async" then require("async/semaphore") && Async::Semaphore.new(2).method(:acquire)
          else
            queue = Thread::SizedQueue.new(2)
            ->(&block) { queue.push(nil) && block.call && queue.pop }
          end
          contend(meter) { use.call { sleep(0) } }
        end

        def measure_resources(meter)
          pool = ((@kind == "heddle") ? Heddle::ResourcePool : ConnectionPool).new(size: 2, timeout: 60) { Object.new }
          contend(meter) { pool.with { sleep(0) } }
        end

        def contend(meter, &use)
          warm_then_measure(meter, @params["count"]) do |count|
            group(Array.new(20) { -> { (count / 20).times(&use) } })
            count
          end
        end

        BUSY_SECONDS = 0.0002 # of computing, each time that a busy task has its turn
        private_constant :BUSY_SECONDS

        # Clients that are already connected, each answered by a task of its own, beside tasks that wait for sockets.
        def measure_accept(meter)
          server = TCPServer.new("127.0.0.1", 0)
          clients = Array.new(@params["count"]) { TCPSocket.new("127.0.0.1", server.local_address.ip_port) }
          pairs = Array.new(@params["busy"]) { UNIXSocket.pair }
          busy = pairs.map { |near, far| -> { near.write("x") && far.readpartial(1) } }
          among(busy, meter) do |ended|
            clients.size.times do
              client = server.accept
              start_task do
                client.write("hello")
                client.close
                ended << nil
              end
            end
          end
        ensure
          [server, *clients].compact.each(&:close)
        end

        def measure_fan_out(meter)
          among([-> { sleep(0) }] * @params["busy"], meter) do |ended|
            @params["count"].times { start_task { ended << nil } }
          end
        end

        # Work that another thread posts: by a pool if the model has one, else by a queue and the fiber that reads it.
        def measure_post(meter)
          count = @params["count"]
          among([-> { sleep(0) }] * @params["busy"], meter) do |ended|
            if @kind == "heddle"
              pool = Heddle::FiberPool.new(count)
              Thread.new { count.times { pool.spawn { ended << nil } } }
            else
              jobs = Thread::Queue.new
              spawn { count.times { jobs.pop.then { |job| start_task(&job) } } }
              Thread.new { count.times { jobs << proc { ended << nil } } }
            end
          end
        end

        def start_task(&block)
          (@kind == "heddle") ? Heddle.spawn(&block) : spawn(&block)
        end

        # Measures the time, beside busy tasks, until every task that the block starts has pushed to the queue.
        def among(busy, meter)
          world do
            stop = false
            all_stopped = Thread::Queue.new
            busy.each do |wait|
              spawn do
                until stop
                  limit = Clock.now + BUSY_SECONDS
                  nil while Clock.now < limit
                  wait.call
                end
                all_stopped << nil
              end
            end
            sleep(0.05)
            meter.measure do
              began = Clock.now
              ended = Thread::Queue.new
              yield ended
              @params["count"].times { ended.pop }
              {"operations" => @params["count"], "amount" => (Clock.now - began) * 1e3}
            end
            stop = true
            busy.each { all_stopped.pop }
          end
        end

        # The memory that waiting fibers add to the process, without that of the sockets.
        def measure_memory(meter)
          count = @params["count"]
          pairs = Array.new(count) { UNIXSocket.pair }
          world do
            GC.start
            before = Workload.memory("VmRSS")
            meter.measure do
              waiting = 0
              ended = Thread::Queue.new
              pairs.each do |near, _|
                spawn do
                  waiting += 1
                  near.wait_readable(3600)
                  ended << true
                end
              end
              sleep(0.001) until waiting == count
              sleep(0.2)
              grown = Workload.memory("VmRSS") - before
              pairs.each { |_, far| far.write_nonblock("x") }
              count.times { ended.pop }
              {"operations" => count, "amount" => grown / count.to_f}
            end
          end
        end

        # Sleeping fibers until no more can be made. They sleep for ever, so the process ends with the answer.
        def measure_most_fibers(meter)
          limit = @params["count"]
          world do
            meter.measure do
              asleep = 0
              begin
                limit.times do |number|
                  spawn { (asleep += 1) && sleep }
                  sleep(0) if (number % 100).zero? # some schedulers start nothing before that
                end
              rescue FiberError, NoMemoryError, SystemCallError => error
                message = "#{error.class}: #{error.message}"
              end
              {"operations" => asleep, "amount" => asleep, "limit_message" => message}
            end
            @deliver.call({"measures" => meter.measures})
          end
        end
      end
    end
  end
end

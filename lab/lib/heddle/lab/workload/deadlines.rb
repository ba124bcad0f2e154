# frozen_string_literal: true

require "timeout"
require "heddle/lab/workload"
require "heddle/lab/shaping_proxy"
require "heddle/lab/workload/deadlines/clients"

module Heddle
  module Lab
    class Workload
      # One client and a server that misbehaves in four ways, all four at once, each on a connection of its own.
      class Deadlines < Workload
        for_bench "deadlines"

        LIMIT = 1
        # The client's own timeout in seconds, where that timeout is not measured.
        NEVER = 60
        SHAPES = {
          "silent" => {stall_at: 0}, "line" => {stall_at: 2}, "value" => {stall_at: 2000}, "drip" => {drip: 0.5}
        }.freeze
        private_constant :LIMIT, :NEVER, :SHAPES

        # @see Workload#prepare
        def prepare
          versions = (@kind == "own" || @kind == "timeout") ? ["timeout #{Timeout::VERSION}"] : load_heddle
          return versions unless @params["client"]

          versions << load_gem(*Clients::GEMS.fetch(@params["client"]))
          # Net::HTTP loads it in a `rescue`. If that happens in several interrupted threads at once, Ruby 3.1 crashes
          # (doc/limits.md).
          require "openssl" if @params["client"] == "Net::HTTP"
          require "heddle/mysql2" if @kind.start_with?("heddle") && @params["client"] == "mysql2"
          versions
        end

        # @see Workload#perform
        def perform(meter)
          address = "#{@params["host"]}:#{@params["port"]}"
          proxies = @params["faults"].to_h { |fault| [fault, ShapingProxy.new(address, program: @params["program"])] }
          client = Clients.fetch(@params["client"])
          client.store(@params)
          meter.measure do
            results = (@kind == "heddle") ? in_fibers(client, proxies) : in_threads(client, proxies)
            {"operations" => results.size, "errors" => 0,
             **results.transform_values { |result| result.fetch("seconds") }, "states" => results}
          end
        end

        private

        # Starts one piece of work for each fault, and collects its result within the patience.
        def in_threads(client, proxies)
          threads = proxies.to_h { |fault, proxy| [fault, Thread.new { measure(client, proxy, fault) }] }
          limit = Clock.now + @params["patience"] + 1
          threads.transform_values { |thread| thread.join([limit - Clock.now, 0].max) ? thread.value : endless }
        end

        def in_fibers(client, proxies)
          results = nil
          Heddle.run do
            tasks = proxies.to_h { |fault, proxy| [fault, Heddle.spawn { measure(client, proxy, fault) }] }
            limit = Clock.now + @params["patience"] + 1
            results = tasks.transform_values { |task| task.wait([limit - Clock.now, 0].max) ? task.value : endless }
            tasks.each_value(&:cancel)
          end
          results
        end

        def endless = {"seconds" => @params["patience"].to_f, "outcome" => "nothing",
                       "connection" => "still waited for", "next" => "–"}

        def measure(client, proxy, fault)
          connection = client.new(@params.merge("port" => proxy.port), (@kind == "own") ? LIMIT : NEVER)
          right = connection.read(0)
          raise "the first answer was wrong" unless right

          proxy.shape(**SHAPES.fetch(fault))
          start = Clock.now
          outcome = attempt { limited { connection.read(1) } }
          seconds = Clock.now - start
          proxy.pass
          {"seconds" => seconds, "outcome" => outcome, **state(connection, proxy)}
        end

        def state(connection, proxy)
          limit = Clock.now + 1
          sleep(0.01) until (closed = proxy.stats["open"].zero?) || Clock.now > limit
          following = attempt { connection.read(2) }
          unless following == "right"
            again = attempt { connection.reconnect || connection.read(2) }
            following = "#{following}; after a new log-in: #{again}"
          end
          {"connection" => closed ? "closed" : "open", "next" => following}
        end

        def limited(&block)
          case @kind
          when "own" then block.call
          when "timeout" then Timeout.timeout(LIMIT, &block)
          else Heddle.deadline(LIMIT, &block)
          end
        end

        # "right", "wrong answer", or the error.
        def attempt
          yield ? "right" : "wrong answer"
        rescue => error
          error.class.name
        end
      end
    end
  end
end

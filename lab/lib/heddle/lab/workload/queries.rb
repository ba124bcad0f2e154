# frozen_string_literal: true

require "heddle/lab/shaping_proxy"
require "heddle/lab/workload"
require "uri"

module Heddle
  module Lab
    class Workload
      # What the workloads of database clients have in common: an operation is a method of the subclass, which takes the
      # number of the query, or the meter if it measures itself.
      class Queries < Workload
        # Tasks that each have a query; connections of the pool, and of one that needs few; seconds to a far server.
        TASKS = 100
        POOL = 10
        FEW = 2
        FAR = 0.01

        # Heddle::DB.
        class DBClient
          def initialize(address)
            @db = Heddle::DB.connect(address)
          end

          def script(sql) = @db.query(sql)

          def query(sql, *values) = @db.query(sql, *values).rows

          def prepare(sql) = @db.prepare(sql)

          def kept(statement, value) = statement.query(value).rows

          def close(statement) = statement.close
        end
        private_constant :DBClient

        # @see Workload#perform
        def perform(meter)
          run = method(@params.fetch("operation"))
          return run.call(meter) if run.parameters == [[:req, :meter]]

          measured(meter, @params.fetch("count")) { |number| run.call(number) }
        end

        private

        def measured(meter, count)
          (count / 10).times { |number| yield(-number) }
          meter.measure do
            number = 0
            while number < count
              number += 1
              yield number
            end
            {"operations" => count}
          end
        end

        # @param query [#call] takes a number, and returns it
        def many_tasks(meter, query)
          turns = @params.fetch("count") / TASKS
          Heddle.run do
            once = -> { Array.new(TASKS) { |n| Heddle.spawn { check(query.call(n), n) } }.each(&:value) }
            once.call
            measured(meter, turns) { once.call }
          end
          meter.measures["operations"] = turns * TASKS
        end

        # A proxy delays the replies. The slower of the tasks decide, since a turn ends with the last of them.
        #
        # @yieldparam url [String] of the proxy
        # @yieldreturn [#call] see {#many_tasks}
        def many_tasks_far_away(meter)
          uri = URI(url = @params.fetch("url"))
          proxy = ShapingProxy.new("#{uri.host}:#{uri.port}", delay: FAR)
          many_tasks(meter, yield(url.sub(":#{uri.port}", ":#{proxy.port}")))
        ensure
          proxy&.stop
        end

        def check(value, expected)
          raise "#{value.inspect} instead of #{expected.inspect}" unless value == expected
        end
      end
    end
  end
end

# frozen_string_literal: true

require "heddle/lab/workload"

module Heddle
  module Lab
    class Workload
      # What the workloads of database clients have in common: an operation is a method of the subclass, which takes the
      # number of the query, or the meter if it measures itself.
      class Queries < Workload
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

        def check(value, expected)
          raise "#{value.inspect} instead of #{expected.inspect}" unless value == expected
        end
      end
    end
  end
end

# frozen_string_literal: true

require "heddle/lab/workload"

module Heddle
  module Lab
    class Workload
      # Queries to PostgreSQL, one after another unless the operation says otherwise.
      class PostgreSQL < Workload
        for_bench "postgresql"

        ROWS = "select n::int as id, 'name of row ' || n as name, " \
          "timestamp '2024-01-01' + n * interval '1 second' as at from generate_series(1, 1000) as n"
        TASKS = 100
        POOL = 10
        private_constant :ROWS, :TASKS, :POOL

        # @see Workload#prepare
        def prepare
          return load_heddle unless @kind == "pg"

          gems = [load_gem("pg")]
          gems += [load_gem("connection_pool"), load_heddle] if @params["operation"] == "pool"
          gems
        end

        # @see Workload#perform
        def perform(meter)
          @client = connect
          run = method(@params.fetch("operation"))
          return run.call(meter) if run.arity == 1

          measured(meter, @params.fetch("count")) { |number| run.call(number, nil) }
        end

        private

        def measured(meter, count)
          (count / 10).times { |number| yield(-number) }
          meter.measure do
            count.times { |number| yield number }
            {"operations" => count}
          end
        end

        def connect
          return connect_pg if @kind == "pg"

          kept = @params["operation"] == "kept"
          Heddle::DB.connect(@params.fetch("url"), timeout: 30, statement_cache: kept ? :always : :transaction)
        end

        def connect_pg
          PG.connect(@params.fetch("url")).tap do |client|
            client.type_map_for_results = PG::BasicTypeMapForResults.new(client)
          end
        end

        def check(value, expected)
          raise "#{value.inspect} instead of #{expected.inspect}" unless value == expected
        end

        def new(number, _)
          sql = "select #{number} as a, $1::int as b"
          result = (@kind == "pg") ? @client.exec_params(sql, [number]).values : @client.query(sql, number).rows
          check(result[0][1], number)
        end

        def prepared(number, _)
          sql = "select #{number} as a, $1::int as b"
          check((@kind == "pg") ? prepared_pg(sql, number) : prepared_heddle(sql, number), number)
        end

        def prepared_pg(sql, number)
          @client.prepare("s", sql)
          value = @client.exec_prepared("s", [number]).values[0][1]
          @client.exec("deallocate s")
          value
        end

        def prepared_heddle(sql, number)
          statement = @client.prepare(sql)
          value = statement.query(number).rows[0][1]
          statement.close
          value
        end

        def kept(number, _)
          result =
            if @kind == "pg"
              @kept ||= @client.prepare("kept", "select 1 as a, $1::int as b")
              @client.exec_prepared("kept", [number]).values
            else
              @client.query("select 1 as a, $1::int as b", number).rows
            end
          check(result[0][1], number)
        end

        def rows(meter)
          measured(meter, @params.fetch("count")) do
            all = (@kind == "pg") ? @client.exec_params(ROWS, []).values : @client.query(ROWS).rows
            check([all.size, all[999][0], all[0][2].class], [1000, 1000, Time])
          end
        end

        def pipeline(meter)
          turns = @params.fetch("count") / 100
          measured(meter, turns) { check((@kind == "pg") ? pipeline_pg : pipeline_heddle, 100) }
          meter.measures["operations"] = turns * 100
        end

        def pipeline_heddle
          futures = @client.pipeline(limit: 100) { |line| (1..100).map { |n| line.query("select $1::int as a", n) } }
          futures.last.value.rows[0][0]
        end

        def pipeline_pg
          @client.enter_pipeline_mode
          (1..100).each do |n|
            @client.send_query_params("select $1::int as a", [n])
            @client.pipeline_sync
          end
          value = nil
          100.times do
            value = @client.get_result.values[0][0]
            @client.get_result # the end of the query's results
            @client.get_result # the answer to its Sync
          end
          @client.exit_pipeline_mode
          value
        end

        def pool(meter)
          turns = @params.fetch("count") / TASKS
          query = (@kind == "pg") ? pool_pg : pool_heddle
          Heddle.run do
            once = -> { Array.new(TASKS) { |n| Heddle.spawn { query.call(n) } }.each(&:value) }
            once.call
            measured(meter, turns) { once.call }
          end
          meter.measures["operations"] = turns * TASKS
        end

        def pool_heddle
          pool = Heddle::DB::Pool.new(@params.fetch("url"), size: POOL, timeout: 30)
          ->(n) { check(pool.query_value("select $1::int", n), n) }
        end

        def pool_pg
          pool = ConnectionPool.new(size: POOL, timeout: 30) { connect_pg }
          ->(n) { pool.with { |client| check(client.exec_params("select $1::int", [n]).values[0][0], n) } }
        end
      end
    end
  end
end

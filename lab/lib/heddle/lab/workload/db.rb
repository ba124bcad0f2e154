# frozen_string_literal: true

require "heddle/lab/objects"
require "heddle/lab/workload/queries"

module Heddle
  module Lab
    class Workload
      # Queries to MariaDB or MySQL, one after another unless the operation says otherwise.
      class DB < Queries
        for_bench "db"

        ROWS = "select id, name, at from rows_for_bench"
        SLEEPERS = 50
        private_constant :ROWS, :SLEEPERS

        # @see Workload#prepare
        def prepare
          case @kind
          when "mysql2", "mysql2_text" then [load_gem("mysql2")]
          when "trilogy" then [load_gem("trilogy")]
          when "raw" then load_heddle.tap { Objects.load }
          when "sequel_mysql2", "sequel_trilogy" then [load_gem("sequel"), load_gem(@kind.delete_prefix("sequel_"))]
          when "sequel_heddle" then [load_gem("sequel"), *load_heddle]
          else load_heddle
          end
        end

        # @see Workload#perform
        def perform(meter)
          @client = connect
          (@kind == "raw") ? raw(meter) : super
        end

        private

        def connect
          return SequelClient.new(@kind, @params.fetch("url")) if sequel?

          uri = URI(@params.fetch("url"))
          options = {host: uri.host, port: uri.port, username: uri.user, password: uri.password,
                     database: uri.path.delete_prefix("/")}
          case @kind
          when "mysql2", "mysql2_text" then Mysql2::Client.new(**options)
          when "trilogy" then Trilogy.new(**options)
          else Heddle::DB.connect(@params.fetch("url"), timeout: 30,
            statement_cache: (@params["operation"] == "kept") ? :always : :transaction)
          end
        end

        def sequel? = @kind.start_with?("sequel")

        def new(number)
          value =
            case @kind
            when /\Asequel/ then @client.new_sql(number)
            when "mysql2" then prepared("select #{number} as a, ? as b", number)
            when "mysql2_text" then @client.query("select #{number} as a, #{number} as b", as: :array).to_a[0][1]
            when "trilogy" then @client.query("select #{number} as a, #{number} as b").rows[0][1]
            else @client.query("select #{number} as a, ? as b", number).rows[0][1]
            end
          check(value, number)
        end

        def prepared(sql, number)
          statement = @client.prepare(sql)
          value = statement.execute(number, as: :array).to_a[0][1]
          statement.close
          value
        end

        def kept(number)
          value =
            if sequel?
              @client.kept(number)
            elsif @kind == "mysql2"
              (@statement ||= @client.prepare("select 1 as a, ? as b")).execute(number, as: :array).to_a[0][1]
            else
              @client.query("select 1 as a, ? as b", number).rows[0][1]
            end
          check(value, number)
        end

        def rows(meter)
          table
          measured(meter, @params.fetch("count")) do
            next check(@client.rows(ROWS), [1000, 1000, Time]) if sequel?

            all =
              case @kind
              when "mysql2" then (@statement ||= @client.prepare(ROWS)).execute(as: :array).to_a
              when "mysql2_text" then @client.query(ROWS, as: :array).to_a
              else @client.query(ROWS).rows
              end
            check([all.size, all[999][0], all[0][2].class], [1000, 1000, Time])
          end
        end

        def raw(meter)
          raw = Raw.new(@client, @params.fetch("count"))
          case @params.fetch("operation")
          when "kept" then raw.kept(meter)
          when "rows" then raw.rows(meter, ROWS, table && 1000)
          else raw.pool(meter, Array.new(SLEEPERS) { connect })
          end
        end

        def table
          @client.query("create temporary table rows_for_bench (id int primary key, name varchar(50), at datetime)")
          @client.query("insert into rows_for_bench with recursive numbers (seq) as " \
            "(select 1 union all select seq + 1 from numbers where seq < 1000) " \
            "select seq, concat('name of row ', seq), from_unixtime(1700000000 + seq) from numbers")
        end

        def pipeline(meter)
          turns = @params.fetch("count") / 100
          measured(meter, turns) do
            futures = @client.pipeline(limit: 100) { |line| (1..100).map { |n| line.query("select ? as a", n) } }
            check(futures.last.value.rows[0][0], 100)
          end
          meter.measures["operations"] = turns * 100
        end

        def pool(meter)
          size = SLEEPERS
          pool = Heddle::DB::Pool.new(@params.fetch("url"), size: size, timeout: 30)
          turns = @params.fetch("count") / size
          Heddle.run do
            once = -> { Array.new(size) { Heddle.spawn { pool.query("select sleep(0.01)") } }.each(&:value) }
            once.call
            measured(meter, turns) { once.call }
          end
          meter.measures.merge!("operations" => turns * size, "ideal" => 0.01 / size)
        end

        def pool_tasks(meter) = many_tasks(meter, query_of_pool(@params.fetch("url"), POOL))

        def pool_far(meter)
          many_tasks_far_away(meter) { |url| query_of_pool(url, (@kind == "heddle") ? POOL : FEW) }
        end

        def query_of_pool(url, size)
          options = (@kind == "heddle") ? {} : {multiplex: TASKS / size}
          pool = Heddle::DB::Pool.new(url, size: size, timeout: 30, **options)
          ->(number) { pool.query_value("select ?", number) }
        end
      end
    end
  end
end

require "heddle/lab/workload/db/raw"
require "heddle/lab/workload/db/sequel"

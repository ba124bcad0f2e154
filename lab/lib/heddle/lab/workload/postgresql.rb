# frozen_string_literal: true

require "heddle/lab/workload/queries"
require "heddle/lab/workload/foreign_program"
require "heddle/lab/workload/racket_program"

module Heddle
  module Lab
    class Workload
      # Queries to PostgreSQL, one after another unless the operation says otherwise. Each client has a class, with a
      # method for each operation.
      class PostgreSQL < Queries
        for_bench "postgresql"

        ROWS = "select n::int as id, 'name of row ' || n as name, " \
          "timestamp '2024-01-01' + n * interval '1 second' as at from generate_series(1, 1000) as n"
        COPIED = Array.new(1000) { |n| [n, "name of row #{n}".freeze, n / 8.0].freeze }.freeze
        BINARY_HEADER = "PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".b.freeze
        BINARY_TRAILER = "\xff\xff".b.freeze
        private_constant :ROWS, :COPIED, :BINARY_HEADER, :BINARY_TRAILER

        # @see Workload#prepare
        def prepare
          return [RacketProgram.version] if @kind == "racket"

          @program = ForeignProgram.of(@kind)
          return @program.versions if @program
          return load_heddle if @kind.start_with?("heddle")
          return [load_gem("sequel"), *load_heddle] if @kind == "sequel_heddle"

          gems = [load_gem("pg")]
          gems << load_gem("sequel") if @kind == "sequel"
          return gems unless @params["operation"] == "pool"

          gems << load_gem("connection_pool") if @kind == "pg"
          gems.concat(load_heddle)
        end

        # @see Workload#perform
        def perform(meter)
          return racket(meter) if @kind == "racket"
          return meter.measure { @program.run(*@params.fetch_values("url", "operation", "count"), ROWS) } if @program

          type = {"heddle" => HeddleClient, "heddle_multiplexed" => MultiplexedClient, "pg" => PGClient,
                  "sequel" => SequelClient, "sequel_heddle" => SequelHeddleClient}.fetch(@kind)
          @client = type.new(@params.fetch("url"), @params["operation"])
          super
        end

        private

        def new(number) = check(@client.new_sql("select #{number} as a, $1::int as b", number), number)

        def prepared(number) = check(@client.prepared("select #{number} as a, $1::int as b", number), number)

        def kept(number) = check(@client.kept("select 1 as a, $1::int as b", number), number)

        def rows(meter)
          measured(meter, @params.fetch("count")) do
            count, last, at = @client.rows(ROWS)
            check([count, last, at.class], [1000, 1000, Time])
          end
        end

        def single(meter)
          measured(meter, @params.fetch("count")) do
            count, last, at = @client.single(ROWS)
            check([count, last, at.class], [1000, 1000, Time])
          end
        end

        def pipeline(meter)
          turns = @params.fetch("count") / 100
          measured(meter, turns) { check(@client.pipeline("select $1::int as a", 1..100), 100) }
          meter.measures["operations"] = turns * 100
        end

        def copy(meter)
          copied(meter) { |turns| @client.copy("copied", turns, COPIED) }
        end

        def copy_binary(meter)
          copied(meter) { |turns| @client.copy_binary("copied", turns, COPIED) }
        end

        def copy_raw(meter)
          text = COPIED.map { |row| "#{row.join("\t")}\n" }.join
          copied(meter) { |turns| @client.copy_raw("copied", [text] * turns) }
        end

        def copy_raw_binary(meter)
          rows = COPIED.map { |id, name, part| [3, 4, id, name.bytesize, name, 8, part].pack("nNNNa*NG") }.join
          copied(meter) do |turns|
            @client.copy_raw("copied", [BINARY_HEADER, *[rows] * turns, BINARY_TRAILER], " (format binary)")
          end
        end

        # Rows that exist beforehand: their making is not measured.
        def copied(meter)
          turns = @params.fetch("count") / COPIED.size
          @client.run("create temporary table copied (id int, name text, part float)")
          meter.measure do
            yield turns
            {"operations" => turns * COPIED.size}
          end
          check(@client.count("copied"), turns * COPIED.size)
        end

        def pool_far(meter)
          many_tasks_far_away(meter) do |url|
            @client.class.new(url, "pool_far").pool((@kind == "heddle") ? POOL : FEW)
          end
        end

        def pool(meter) = many_tasks(meter, @client.pool(POOL))

        def racket(meter)
          count = @params.fetch("count")
          url, socket, operation = @params.fetch_values("url", "socket", "operation")
          measures = Racket.new(url, socket, operation, ROWS).run(count)
          meter.measure { {"operations" => count} }
          meter.measures.merge!(measures)
        end
      end
    end
  end
end

%w[heddle pg sequel racket].each { |client| require "heddle/lab/workload/postgresql/#{client}" }

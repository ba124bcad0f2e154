# frozen_string_literal: true

require "heddle/lab/workload/queries"

module Heddle
  module Lab
    class Workload
      # Statements of SQLite, one after another. Each client has a class, with a method for each operation.
      class SQLite < Queries
        for_bench "sqlite"

        ROW = "select id, name, part from rows_for_bench where id = ?"
        ROWS = "select id, name, part from rows_for_bench"
        INSERT = "insert into written (name) values (?)"
        MADE = <<~SQL
          pragma journal_mode = wal; pragma synchronous = normal;
          create table if not exists written (id integer primary key, name text);
          create table if not exists rows_for_bench (id integer primary key, name text, part real);
          insert or ignore into rows_for_bench
            with recursive c (n) as (select 1 union all select n + 1 from c limit 1000)
            select n, 'name of row ' || n, n / 8.0 from c;
        SQL
        private_constant :ROW, :ROWS, :INSERT, :MADE

        class HeddleClient < DBClient
          def initialize(path) = super("sqlite://#{path}")
        end

        # The gem sqlite3.
        class SQLite3Client
          def initialize(path)
            @db = ::SQLite3::Database.new(path)
          end

          def script(sql) = @db.execute_batch(sql)

          def query(sql, *values) = @db.execute(sql, values)

          def prepare(sql) = @db.prepare(sql)

          def kept(statement, value)
            statement.bind_param(1, value)
            rows = []
            while (row = statement.step)
              rows << row
            end
            statement.reset!
            rows
          end

          def close(statement) = statement.close
        end

        # The gem extralite.
        class ExtraliteClient
          def initialize(path)
            @db = ::Extralite::Database.new(path)
          end

          def script(sql) = @db.execute(sql)

          def query(sql, *values) = @db.query_array(sql, *values)

          def prepare(sql) = @db.prepare_array(sql)

          def kept(statement, value) = statement.bind(value).to_a

          def close(statement) = statement.close
        end

        # Sequel over the gem sqlite3. Its rows are Hashes.
        class SequelClient
          PREFIX = "sqlite://"

          def initialize(path)
            @db = Sequel.connect("#{self.class::PREFIX}#{path}", max_connections: 1)
          end

          def script(sql) = sql.split(";").map(&:strip).reject(&:empty?).each { |statement| @db.run(statement) }

          def query(sql, *values) = @db[sql, *values].map(&:values)

          def prepare(sql) = @db[sql, :$key].prepare(:select, :kept)

          def kept(statement, value) = statement.call(key: value).map(&:values)
        end

        # Sequel over Heddle.
        class SequelHeddleClient < SequelClient
          PREFIX = "heddle-sqlite://"
        end

        CLIENTS = {"heddle" => HeddleClient, "sqlite3" => SQLite3Client, "extralite" => ExtraliteClient,
                   "sequel" => SequelClient, "sequel_heddle" => SequelHeddleClient}.freeze
        private_constant :HeddleClient, :SQLite3Client, :ExtraliteClient, :SequelClient, :SequelHeddleClient, :CLIENTS

        # @see Workload#prepare
        def prepare
          case @kind
          when "heddle" then load_heddle.tap { require "heddle/db" }
          when "sequel" then [load_gem("sqlite3"), load_gem("sequel")]
          when "sequel_heddle" then [load_gem("sequel"), *load_heddle]
          else [load_gem(@kind)]
          end
        end

        # @see Workload#perform
        def perform(meter)
          @client = CLIENTS.fetch(@kind).new(@params.fetch("path"))
          @client.script(MADE)
          super
        end

        private

        def kept(number)
          @statement ||= @client.prepare(ROW)
          check(@client.kept(@statement, key(number)), row(key(number)))
        end

        def query(number) = check(@client.query(ROW, key(number)), row(key(number)))

        def new(number) = check(@client.query("select #{number} as a, ? as b", number), [[number, number]])

        def prepared(number)
          statement = @client.prepare("select #{number} as a, ? as b")
          check(@client.kept(statement, number), [[number, number]])
          @client.close(statement)
        end

        def rows(meter)
          measured(meter, @params.fetch("count")) do
            rows = @client.query(ROWS)
            check([rows.size, rows.last], [1000, [1000, "name of row 1000", 125.0]])
          end
        end

        def written(number) = @client.query(INSERT, "name #{number}")

        def key(number) = number.abs % 1000 + 1

        def row(key) = [[key, "name of row #{key}", key / 8.0]]
      end
    end
  end
end

# frozen_string_literal: true

require "heddle/lab/workload/queries"

module Heddle
  module Lab
    class Workload
      # Statements by ODBC, one after another. Each client has a class, with a method for each operation.
      class ODBC < Queries
        for_bench "odbc"

        ROW = "select id, name, part from rows_for_bench where id = ?"
        ROWS = "select id, name, part from rows_for_bench"
        MADE = [
          "create table if not exists rows_for_bench (id integer primary key, name varchar(40), part double)",
          "insert or ignore into rows_for_bench " \
            "with recursive c (n) as (select 1 union all select n + 1 from c limit 1000) " \
            "select n, 'name of row ' || n, n / 8.0 from c"
        ].freeze
        private_constant :ROW, :ROWS, :MADE

        class HeddleClient < DBClient
          def initialize(string) = super("odbc:#{string}")
        end

        # The gem ruby-odbc.
        class RubyODBCClient
          def initialize(string)
            driver = ::ODBC::Driver.new
            driver.name = "bench"
            string.split(";").each { |pair| pair.split("=", 2).then { |name, value| driver.attrs[name] = value } }
            @db = ::ODBC::Database.new.drvconnect(driver)
          end

          def script(sql) = @db.do(sql)

          def query(sql, *values)
            statement = @db.run(sql, *values)
            statement.fetch_all || []
          ensure
            statement&.drop
          end

          def prepare(sql) = @db.prepare(sql)

          def kept(statement, value)
            statement.execute(value)
            statement.fetch_all || []
          end

          def close(statement) = statement.drop
        end

        CLIENTS = {"heddle" => HeddleClient, "ruby_odbc" => RubyODBCClient}.freeze
        private_constant :HeddleClient, :RubyODBCClient, :CLIENTS

        # @see Workload#prepare
        def prepare
          return [load_gem("ruby-odbc", "odbc")] unless @kind == "heddle"

          load_heddle.tap { require "heddle/db/odbc" }
        end

        # @see Workload#perform
        def perform(meter)
          ENV.update(@params.fetch("environment"))
          @client = CLIENTS.fetch(@kind).new(@params.fetch("string"))
          MADE.each { |sql| @client.script(sql) }
          super
        end

        private

        def kept(number)
          @statement ||= @client.prepare(ROW)
          check(@client.kept(@statement, key(number)), row(key(number)))
        end

        def query(number) = check(@client.query(ROW, key(number)), row(key(number)))

        def prepared(number)
          statement = @client.prepare("select #{number} as a, ? as b")
          check(@client.kept(statement, number).size, 1)
          @client.close(statement)
        end

        def rows(meter)
          measured(meter, @params.fetch("count")) do
            rows = @client.query(ROWS)
            check([rows.size, rows.last], [1000, [1000, "name of row 1000", 125.0]])
          end
        end

        def key(number) = number.abs % 1000 + 1

        def row(key) = [[key, "name of row #{key}", key / 8.0]]
      end
    end
  end
end

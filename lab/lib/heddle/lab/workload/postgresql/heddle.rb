# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class PostgreSQL < Queries
        # Heddle's own client.
        class HeddleClient
          def initialize(url, operation)
            @url = url
            cache = (operation == "kept") ? :always : :transaction
            @db = Heddle::DB.connect(url, timeout: 60, statement_cache: cache)
          end

          def new_sql(sql, number) = @db.query(sql, number).rows[0][1]

          alias_method :kept, :new_sql

          def prepared(sql, number)
            statement = @db.prepare(sql)
            value = statement.query(number).rows[0][1]
            statement.close
            value
          end

          def rows(sql)
            all = @db.query(sql).rows
            [all.size, all[999][0], all[0][2]]
          end

          def single(sql)
            count = last = nil
            @db.each_row(sql).with_index(1) { |row, number| count, last = number, row }
            [count, last[0], last[2]]
          end

          def pipeline(sql, numbers)
            @db.pipeline { |line| numbers.map { |number| line.query(sql, number) } }.last.value.rows[0][0]
          end

          def run(sql) = @db.exec(sql)

          def count(table) = @db.query_value("select count(*) from #{table}")

          def copy(table, turns, rows, form = "")
            @db.copy_in("copy #{table} from stdin#{form}") do |copy|
              turns.times { rows.each { |row| copy << row } }
            end
          end

          def copy_binary(table, turns, rows) = copy(table, turns, rows, " (format binary)")

          def copy_raw(table, pieces, form = "")
            @db.copy_in("copy #{table} from stdin#{form}") { |copy| pieces.each { |bytes| copy.write(bytes) } }
          end

          def pool(size, **options)
            pool = Heddle::DB::Pool.new(@url, size: size, timeout: 30, **options)
            ->(number) { pool.query_value("select $1::int", number) }
          end
        end

        # The same, with the statements of all tasks in flight at once.
        class MultiplexedClient < HeddleClient
          def pool(size) = super(size, multiplex: Queries::TASKS / size)
        end
        private_constant :HeddleClient, :MultiplexedClient
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class PostgreSQL < Queries
        # The gem pg, with values converted as it recommends.
        class PGClient
          def initialize(url, _operation)
            @url = url
            @client = connect
          end

          def new_sql(sql, number) = @client.exec_params(sql, [number]).values[0][1]

          def prepared(sql, number)
            @client.prepare("s", sql)
            value = @client.exec_prepared("s", [number]).values[0][1]
            @client.exec("deallocate s")
            value
          end

          def kept(sql, number)
            @kept ||= @client.prepare("kept", sql)
            @client.exec_prepared("kept", [number]).values[0][1]
          end

          def rows(sql)
            all = @client.exec_params(sql, []).values
            [all.size, all[999][0], all[0][2]]
          end

          def single(sql)
            count = 0
            last = nil
            @client.send_query_params(sql, [])
            @client.set_single_row_mode
            @client.get_result.stream_each_row { |row| count, last = count + 1, row }
            @client.get_result # the end of the query's results
            [count, last[0], last[2]]
          end

          def pipeline(sql, numbers)
            @client.enter_pipeline_mode
            numbers.each do |number|
              @client.send_query_params(sql, [number])
              @client.pipeline_sync
            end
            value = nil
            numbers.each do
              value = @client.get_result.values[0][0]
              @client.get_result # the end of the query's results
              @client.get_result # the answer to its Sync
            end
            @client.exit_pipeline_mode
            value
          end

          def run(sql) = @client.exec(sql)

          def count(table) = @client.exec("select count(*) from #{table}").values[0][0]

          def copy(table, turns, rows)
            types = [PG::TextEncoder::Integer.new, PG::TextEncoder::String.new, PG::TextEncoder::Float.new]
            copy_by(PG::TextEncoder::CopyRow, types, "copy #{table} from stdin", turns, rows)
          end

          def copy_binary(table, turns, rows)
            types = [PG::BinaryEncoder::Int4.new, PG::BinaryEncoder::String.new, PG::BinaryEncoder::Float8.new]
            copy_by(PG::BinaryEncoder::CopyRow, types, "copy #{table} from stdin (format binary)", turns, rows)
          end

          def copy_raw(table, pieces, form = "")
            @client.copy_data("copy #{table} from stdin#{form}") do
              pieces.each { |bytes| @client.put_copy_data(bytes) }
            end
          end

          def pool(size)
            pool = ConnectionPool.new(size: size, timeout: 30) { connect }
            lambda do |number|
              pool.with { |client| client.exec_params("select $1::int", [number]).values[0][0] }
            end
          end

          private

          def copy_by(encoder, types, sql, turns, rows)
            @client.copy_data(sql, encoder.new(type_map: PG::TypeMapByColumn.new(types))) do
              turns.times { rows.each { |row| @client.put_copy_data(row) } }
            end
          end

          def connect
            PG.connect(@url).tap { |client| client.type_map_for_results = PG::BasicTypeMapForResults.new(client) }
          end
        end
        private_constant :PGClient
      end
    end
  end
end

# frozen_string_literal: true

module ClientFuzz
  module Operations
    # Pools with multiplex:, whose connections the statements of several tasks share. Each method takes any of them.
    module Shared
      # What to ask each database: a text, a text after some seconds, a text so many times, rows up to a number.
      SQL = {
        mysql: {text: "select ?", slow: "select concat(?, left(sleep(?), 0))", repeat: "select repeat(?, ?)",
                rows: DB::ROWS, set: "set @leak = ?", leak: "select @leak",
                wrong: "select nothing from nowhere where a = ?"},
        postgresql: {text: "select ?::text", slow: "select ?::text from pg_sleep(?)",
                     repeat: "select repeat(?::text, ?::int)",
                     rows: "select n::int, ?::text || n from generate_series(1, ?::int) as n",
                     set: "select set_config('heddle.leak', ?, false)",
                     leak: "select nullif(current_setting('heddle.leak', true), '')",
                     wrong: "select nothing from nowhere where a = ?::text"}
      }.freeze

      private

      def any_shared
        name, pool = @clients.shared.to_a.sample(random: @random)
        yield pool, SQL.fetch(name), name
      end

      def operation_shared_text
        any_shared do |pool, sql|
          (1 + roll(4)).times do |n|
            value = pool.query_value(sql[:text], "#{@token}#{n}")
            expect(value == "#{@token}#{n}", "asked for #{n}, and got #{value.inspect[0, 200]}")
          end
        end
      end

      def operation_shared_slow
        any_shared do |pool, sql|
          value = pool.query_value(sql[:slow], @token, @random.rand * 0.02)
          expect(value == @token, "a slow statement got #{value.inspect[0, 200]}")
        end
      end

      def operation_shared_large
        times = 1 + roll(chance(0.1) ? 100_000 : 3000)
        any_shared do |pool, sql|
          value = pool.query_value(sql[:repeat], @token, times)
          expect(value == @token * times, "#{value.to_s.size} bytes for #{times} times: #{value.inspect[0, 200]}")
        end
      end

      def operation_shared_large_request
        bytes = @token * (1 + roll(20_000))
        any_shared do |pool, sql|
          value = pool.query_value(sql[:text], bytes)
          expect(value == bytes, "got #{value.to_s.size} bytes of #{bytes.size}: #{value.inspect[0, 100]}")
        end
      end

      def operation_shared_rows
        count = 1 + roll(400)
        any_shared do |pool, sql, name|
          arguments = (name == :mysql) ? [count, @token] : [@token, count]
          rows = pool.query(sql[:rows], *arguments).rows
          complete = rows == (1..count).map { |n| [n, "#{@token}#{n}"] }
          expect(complete, "got #{rows.size} rows of #{count}: #{rows.first.inspect}")
        end
      end

      # The server's error, or one of a value that cannot be sent, belongs to its own statement.
      def operation_shared_wrong
        any_shared do |pool, sql|
          if chance(0.5)
            pool.query(sql[:wrong], @token)
          else
            pool.query(sql[:text], Object.new)
          end
          expect(false, "a wrong statement gave no error")
        rescue TypeError
          nil
        rescue Heddle::DB::ServerError => error
          raise if error.retryable? || error.is_a?(Heddle::DB::ConnectionLost)

          expect(error.message.match?(/nowhere/i), "the error of another: #{error.message}")
        end
      end

      # On a whole connection, among those that are shared.
      def operation_shared_whole
        any_shared do |pool, sql|
          pool.with do |connection|
            expect(connection.query_value(sql[:leak]).nil?, "the session of another")
            connection.query(sql[:set], @token)
            expect(connection.query_value(sql[:leak]) == @token, "a session")
            expect(connection.query_value(sql[:text], @token) == @token, "in a session")
          end
        end
      end

      def operation_shared_transaction
        any_shared do |pool, sql|
          pool.transaction do |connection|
            expect(pool.query_value(sql[:text], @token) == @token, "a transaction's pool")
            expect(connection.query_value(sql[:slow], @token, @random.rand * 0.01) == @token, "in a transaction")
            raise Actor::OnPurpose if chance(0.2)
          end
        rescue Actor::OnPurpose
          nil
        end
      end

      def operation_shared_session
        any_shared do |pool, sql|
          pool.query(sql[:set], @token)
          value = pool.query_value(sql[:leak])
          expect(value.nil?, "the session of another: #{value.inspect}")
        end
      end

      # Answers of many tasks, of which some are given up.
      def operation_shared_map
        return unless Fiber.current_scheduler

        any_shared do |pool, sql|
          values = Heddle.map(0...(1 + roll(20)), fibers: 1 + roll(12), errors: :return) do |n|
            Heddle.deadline(chance(0.2) ? @random.rand * 0.01 : nil) do
              pool.query_value(sql[:slow], "#{@token}#{n}", @random.rand * 0.005)
            end
          end
          values.each_with_index do |value, n|
            raise value if value.is_a?(Exception) && !value.is_a?(Timeout::Error)

            expect(value.is_a?(Exception) || value == "#{@token}#{n}", "#{n} got #{value.inspect[0, 200]}")
          end
        end
      end

      # A type that no connection has met: its reader asks the server, alone on the connection.
      def operation_shared_type
        pool = @clients.shared[:postgresql]
        return unless pool && chance(0.3)

        type = "client_fuzz_#{@token.delete(".")}"
        pool.query("create type #{type} as enum ('#{@token}')")
        row = pool.query_row("select '#{@token}'::#{type}, ?::text, array['#{@token}']::#{type}[]", @token)
        expect(row == [@token, @token, [@token]], "values of a new type are #{row}")
        pool.query("drop type #{type}")
      end

      def operation_shared_clear
        return unless chance(0.1)

        any_shared { |pool| pool.clear }
      end
    end
  end
end

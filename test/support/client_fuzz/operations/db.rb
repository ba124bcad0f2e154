# frozen_string_literal: true

module ClientFuzz
  module Operations
    # Heddle::DB through its pool.
    module DB
      ROWS = "with recursive s(n) as (select 1 union all select n + 1 from s where n < ?) select n, concat(?, n) from s"

      private

      def operation_db_value
        value = @clients.db.query_value("select ?", @token)
        expect(value == @token, "asked, and got #{value.inspect}")
      end

      def operation_db_slow
        row = @clients.db.query_row("select ?, sleep(?)", @token, @random.rand * 0.02)
        expect(row == [@token, 0], "got #{row.inspect}")
      end

      def operation_db_large
        bytes = @token * (1 + roll(20_000))
        value = @clients.db.query_value("select ?", bytes)
        expect(value == bytes, "got #{value.size} bytes of #{bytes.size}: #{value[0, 100]}")
      end

      def operation_db_rows
        count = 1 + roll(900)
        rows = @clients.db.query(ROWS, count, @token).rows
        complete = rows == (1..count).map { |n| [n, "#{@token}#{n}"] }
        expect(complete, "got #{rows.size} rows of #{count}: #{rows.first.inspect}")
      end

      def operation_db_several
        @clients.db.with do |connection|
          (1 + roll(5)).times do |n|
            value = connection.query_value("select concat(?, #{n % 3})", @token)
            expect(value == "#{@token}#{n % 3}", "query #{n} got #{value.inspect}")
          end
        end
      end

      def operation_db_pipeline
        way_out = roll(5)
        catch(:out) do
          @clients.db.pipeline(limit: 1 + roll(40)) do |pipeline|
            futures = Array.new(1 + roll(60)) { |n| pipeline.query("select ?, #{n % 7}", "#{@token}#{n}") }
            throw :out if way_out == 0
            raise Actor::OnPurpose if way_out == 1

            futures.each_with_index do |future, n|
              row = future.value.rows.first
              expect(row == ["#{@token}#{n}", n % 7], "answer #{n} of a pipeline is #{row.inspect}")
            end
          end
        end
      end

      def operation_db_each_row
        count, stop = 1 + roll(60), roll(60)
        seen = 0
        @clients.db.with do |connection|
          connection.each_row(ROWS, count, @token, fetch: 1 + roll(20)) do |n, text|
            seen += 1
            expect(n == seen && text == "#{@token}#{n}", "row #{seen} of a cursor is #{[n, text].inspect}")
            expect(connection.query_value("select ?", @token) == @token, "beside a cursor") if chance(0.1)
            break if seen == stop
          end
          expect(connection.query_value("select concat(?, 1)", @token) == "#{@token}1", "after a cursor")
        end
      end

      # Enumerator#next would hold the connection until the Enumerator is collected.
      def operation_db_enumerator
        count = 1 + roll(20)
        rows = @clients.db.each_row(ROWS, 50, @token, fetch: 7).first(count)
        expect(rows == (1..count).map { |n| [n, "#{@token}#{n}"] }, "an Enumerator gave #{rows.size} rows")
      end

      def operation_db_statement
        @clients.db.with do |connection|
          statement = connection.prepare("select concat(?, ?)")
          2.times { |n| expect(statement.query(@token, n).rows.first.first == "#{@token}#{n}", "a statement") }
          statement.close if chance(0.5)
        end
      end

      def operation_db_transaction
        state = nested = :none
        way_out = roll(8)
        catch(:out) do
          @clients.db.transaction do |connection|
            state = :open
            insert(connection, 1)
            begin
              connection.transaction do
                insert(connection, 10)
                raise Actor::OnPurpose if way_out == 0

                nested = :kept
              end
            rescue Actor::OnPurpose
              nested = :undone
            end
            # The pool joins the transaction.
            rows = @clients.db.query_value("select count(*) from #{Clients::TABLE} where token = ?", @token)
            expect(rows == kept(nested), "a transaction sees #{rows} of its own rows")
            raise Actor::OnPurpose if way_out == 1

            throw :out if way_out == 2
            state = :ending
          end
          state = :committed
        end
      rescue Actor::OnPurpose
        nil
      ensure
        check_rows(state, nested)
      end

      def insert(connection, n)
        connection.exec("insert into #{Clients::TABLE} (token, n) values (?, ?)", @token, n)
      end

      # How many rows the transaction has inserted.
      def kept(nested) = (nested == :kept) ? 2 : 1

      # An interrupted transaction has left nothing, unless its COMMIT was interrupted.
      def check_rows(state, nested)
        return if state == :none || $!.is_a?(Heddle::Cancellation) || Thread.current.status == "aborting"

        token = @token
        expected = {committed: [kept(nested)], ending: [0, kept(nested)], open: [0]}.fetch(state)
        rows = nil
        Heddle.shield(2) { rows = @clients.rows_of(token) }
        expect(expected.include?(rows), "a transaction that is #{state} (inner one #{nested}) has left #{rows} rows")
      end

      def operation_db_session
        @clients.db.with do |connection|
          row = connection.query_row("select @leak is null, @@autocommit, ?", @token)
          expect(row == [1, 1, @token], "the session of another: #{row}")
          case roll(4)
          when 0 then connection.exec("set @leak = ?", @token)
          when 1 then connection.exec("set autocommit = 0")
          when 2 then connection.exec("set sql_mode = 'ANSI'")
          else connection.exec("create temporary table if not exists leaked (a int)")
          end
        end
      end

      # Other threads may be inside a query when the process forks.
      def operation_db_fork
        return unless chance(0.1)

        @clients.db.with do |connection|
          expect(connection.query_value("select ?", @token) == @token, "before a fork")
          pid = fork { in_child(connection) }
          begin
            expect(connection.query_value("select concat(?, 1)", @token) == "#{@token}1", "beside a child")
          ensure
            reap(pid)
          end
        end
      end

      def reap(pid)
        Heddle.shield(2) do
          _, status = Process.wait2(pid)
          expect(status.exitstatus == 7, "a child ended by #{status}")
        end
      rescue Timeout::Error
        @session.count(RuntimeError.new("child"))
        end_child(pid)
      end

      def end_child(pid)
        Process.kill(:KILL, pid)
        Process.detach(pid)
      rescue Errno::ESRCH
        nil # the wait had just reaped it when its time was over
      end

      # Ends the child at once on Rubies that crash in a child of a process with threads (doc/limits.md).
      def in_child(connection)
        exit!(7) unless RUBY_VERSION >= "3.3" && RUBY_VERSION < "4.0"

        begin
          connection.query_value("select 1")
          exit!(8)
        rescue Heddle::DB::ConnectionLost
          exit!(7)
        end
      ensure
        exit!(9)
      end
    end
  end
end

# frozen_string_literal: true

require "date"

# What every database does, whichever it is. A class that includes these defines how to connect (#connect, with
# options of Heddle::DB.connect), how to wait (#in_host), and the SQL of its server: #series(count), a query of one
# column with the numbers from 1 on, #sleep_sql(seconds), and #a_comment_without_a_space, a query with "--?" in it.
# #unbindable are values that the server has no form for, #mistyped those of a class that cannot be bound.
module DatabaseSuite
  module Queries
    def test_a_query_with_arguments
      with_connection do |db|
        result = db.query("select 1 as one, ? as two, ? as three", 2, "drei")
        assert_equal [[1, 2, "drei"]], result.rows
        assert_equal %w[one two three], result.fields
        assert_equal [{"one" => 1, "two" => 2, "three" => "drei"}], result.hashes
        assert_equal %i[integer integer text], result.columns.map(&:type)
        assert_equal [1, 2, "drei"], result.first
        assert_equal 1, result.size
        assert_equal [[1, 2, "drei"]], result.map(&:itself)
        assert_predicate result, :rows?
      end
    end

    # Before 1582-10-15 Ruby's dates are Julian, and those of databases are not: both show the same digits. So do the
    # ten days that Ruby leaves out, and dates of the other calendar.
    def test_dates_before_the_reform_keep_their_digits
      dates = [[1, 1, 1], [1500, 3, 1], [1582, 10, 4], [1582, 10, 15], [1582, 12, 31], [2024, 2, 29]]
        .map { |parts| Date.new(*parts) }
      left_out = [Date.new(1500, 3, 1, Date::GREGORIAN), Date.new(1582, 10, 10, Date::GREGORIAN),
        Date.new(2024, 1, 1, Date::JULIAN)]
      with_table("d date, t varchar(40)") do |db, table|
        (dates + left_out).each do |date|
          db.exec("delete from #{table}")
          db.exec("insert into #{table} (d, t) values (?, ?)", date, date.to_s)
          db.exec("insert into #{table} (d, t) values ('#{date}', ?)", date.to_s)
          read = db.query_column("select d from #{table} where d = ?", date)
          assert_equal [date.to_s] * 2, read.map(&:to_s)
          assert_equal [date] * 2, read if dates.include?(date)
          assert_equal date.to_s, db.query_value("select cast(d as char(10)) from #{table} limit 1")
        end
        assert_raises(ArgumentError) { db.exec("insert into #{table} (d) values (?)", Date.new(1500, 2, 29)) }
      end
    end

    def test_times_before_the_reform_keep_their_digits
      with_table("t #{datetime_type}") do |db, table|
        [DateTime.new(1500, 3, 1, 12, 30, 1), DateTime.new(1582, 10, 4, 1, 0, 0, "+02:00")].each do |time|
          db.exec("delete from #{table}")
          db.exec("insert into #{table} values (?)", time)
          shown = Time.new(time.year, time.month, time.day, time.hour, time.min, time.sec, time.zone)
          assert_equal shown, db.query_value("select t from #{table}")
        end
        assert_raises(ArgumentError) { db.exec("insert into #{table} values (?)", DateTime.new(1500, 2, 29)) }
      end
    end

    def datetime_type = "timestamp"

    # As Rails.cache and Heddle.map do.
    def test_results_survive_marshal
      with_connection do |db|
        result = db.query("select 1 as one, ? as two, ? as three", 2.5, Time.utc(2024, 2, 29, 1, 2, 3))
        copy = Marshal.load(Marshal.dump(result))
        assert_equal [result.rows, result.fields, result.columns, result.hashes],
          [copy.rows, copy.fields, copy.columns, copy.hashes]
        assert_equal [0, nil, 0, nil, true],
          [copy.affected_rows, copy.last_insert_id, copy.warnings, copy.following, copy.rows?]
        copy = Marshal.load(Marshal.dump(copy))
        assert_equal [result.rows, result.columns], [copy.rows, copy.columns]
      end
      with_table("id int, name varchar(20)") do |db, table|
        copy = Marshal.load(Marshal.dump(db.query("insert into #{table} values (1, 'a')")))
        assert_equal [1, [], [], [], false], [copy.affected_rows, copy.rows, copy.fields, copy.columns, copy.rows?]
      end
    end

    def test_statements_that_change_rows
      with_table("id int, name varchar(20)") do |db, table|
        assert_equal 2, db.exec("insert into #{table} values (?, ?), (?, ?)", 1, "a", 2, nil)
        result = db.query("update #{table} set name = ? where id = ?", "b", 2)
        assert_equal [1, [], []], [result.affected_rows, result.rows, result.columns]
        refute_predicate result, :rows?
        assert_equal [[1, "a"], [2, "b"]], db.query("select * from #{table} order by id").rows
        assert_equal [], db.query("select * from #{table} where id = ?", 3).rows
        assert_equal %w[id name], db.query("select * from #{table} where id = ?", 3).fields
      end
    end

    def test_query_value_query_row_and_query_list
      with_connection do |db|
        assert_equal 3, db.query_value("select ? + 1", 2)
        assert_equal [1, "x"], db.query_row("select 1, 'x'")
        assert_equal [1, 2, 3], db.query_column(series(3))
        assert_equal [1], db.query_row_or_nil("select 1")
        assert_nil db.query_row_or_nil("select 1 from (#{series(1)}) as t where 1 = 0")
        none = "select 1 from (#{series(1)}) as t where 1 = 0"
        [[:query_value, "select 1, 2"], [:query_value, series(2)], [:query_value, none], [:query_row, series(2)],
          [:query_row, none],
          [:query_column, "select 1, 2"], [:query_row_or_nil, series(2)]].each do |method, sql|
          assert_includes assert_raises(Heddle::DB::UnexpectedRows) { db.public_send(method, sql) }.message, sql
        end
        assert_equal 1, db.query_value("select 1")
      end
    end

    def test_a_refused_statement_leaves_the_connection_usable
      with_connection do |db|
        error = assert_raises(Heddle::DB::ServerError) { db.query("select * from nowhere_at_all where id = ?", 1) }
        assert_kind_of Heddle::Error, error
        assert_includes error.message, "nowhere_at_all"
        assert_equal "select * from nowhere_at_all where id = ?", error.sql
        assert_match(state_of_a_missing_table, error.sql_state)
        refute_predicate error, :retryable?
        assert_raises(Heddle::DB::ServerError) { db.query("this is no sql") }
        assert_equal 1, db.query_value("select 1")
        assert_predicate db, :healthy?
      end
    end

    # The wrong number of arguments must not reach the server, which would read the bytes of one value as another's.
    def test_the_wrong_number_of_arguments
      with_connection do |db|
        [["select ?", []], ["select 1", [1]], ["select ?, ?", [1]], ["select ?", [1, 2]],
          ["select '?', ? -- ?\n", []]].each do |sql, arguments|
          error = assert_raises(ArgumentError) { db.query(sql, *arguments) }
          assert_match(/given #{arguments.size}, expected \d/, error.message)
          statement = db.prepare(sql)
          assert_raises(ArgumentError) { statement.query(*arguments) }
        end
        assert_equal 5, db.query_value("select ?", 5)
      end
    end

    def test_arguments_that_cannot_be_bound_are_not_sent
      with_connection do |db|
        mistyped.each { |value| assert_raises(TypeError) { db.query("select ?, ?", 1, value) } }
        unbindable.each { |value| assert_raises(ArgumentError) { db.query("select ?", value) } }
        assert_predicate db, :healthy?
        assert_equal 5, db.query_value("select ?", 5)
      end
    end

    def test_question_marks_in_strings_and_comments_are_not_parameters
      with_connection do |db|
        assert_equal ["?", "it's ?", 1], db.query_row("select '?', 'it''s ?', /* ? */ ? -- ?", 1)
        sql, *arguments, value = a_comment_without_a_space
        assert_equal value, db.query_value(sql, *arguments)
      end
    end

    def test_many_rows_one_by_one
      with_connection do |db|
        seen = []
        db.each_row(series(2500), fetch: 100) { |row| seen << row.first }
        assert_equal (1..2500).to_a, seen
        assert_equal [[1], [2]], db.each_row(series(10), fetch: 3).first(2)
        db.each_row(series(10), fetch: 2) { |(n)| assert_equal n + 1, db.query_value("select ? + 1", n) }
        assert_raises(ArgumentError) { db.each_row(series(10), fetch: 0) { flunk } }
        assert_raises(Heddle::DB::ServerError) { db.each_row("select * from nowhere_at_all") { flunk } }
        assert_raises(RuntimeError) { db.each_row(series(10), fetch: 2) { raise "enough" } }
        assert_predicate db, :healthy?
      end
    end

    def test_prepared_statements
      with_connection do |db|
        statement = db.prepare("select ? + 1 as n")
        assert_equal 1, statement.parameters
        assert_equal [Symbol], statement.parameter_types.map(&:class)
        assert_equal [], db.prepare("select 1").parameter_types
        assert_equal ["n"], statement.columns.map(&:name)
        assert_equal [2, 3, 4], [1, 2, 3].map { |n| statement.query(n).rows[0][0] }
        # The result has the type of the bound argument.
        assert_equal [2.5, 3, 2.5], [1.5, 2, 1.5].map { |n| statement.query(n).rows[0][0] }
        statement.close
        statement.close
        assert_predicate statement, :closed?
        assert_raises(Heddle::DB::StatementClosed) { statement.query(1) }
        assert_raises(Heddle::DB::ServerError) { db.prepare(refused_at_prepare) }
        with_connection do |other|
          assert_raises(Heddle::DB::StatementClosed) { other.run_statement(db.prepare("select 1"), nil, []) }
          assert_equal 1, other.query_value("select 1")
        end
      end
    end

    def test_a_pipeline
      with_table("id int primary key") do |db, table|
        futures = db.pipeline do |pipeline|
          (1..100).map { |n| pipeline.query("insert into #{table} values (?)", n % 90) } <<
            pipeline.query("select count(*) from #{table}")
        end
        results = futures.map do |future|
          future.value
        rescue Heddle::DB::ServerError => error
          error
        end
        assert_equal 10, results.grep(Heddle::DB::ServerError).size
        assert_equal 90, results.last.rows[0][0]
        assert_equal 90, db.query_value("select count(*) from #{table}")
        # Errors before anything is sent are the query's own, too.
        good, bad, typed =
          db.pipeline { |p| [p.query("select ?", 1), p.query("select ?"), p.query("select ?", Object.new)] }
        assert_equal 1, good.value.rows[0][0]
        assert_raises(ArgumentError) { bad.value }
        assert_raises(TypeError) { typed.value }
        early = db.pipeline { |p| p.query("select 1").value.rows }
        assert_equal [[1]], early
        assert_raises(ArgumentError) { db.pipeline(limit: 0) { flunk } }
        assert_predicate db, :healthy?
      end
    end

    # A caller's buffer, and a text that is built again, are other ones by the time that they are sent.
    def test_a_pipeline_keeps_what_it_was_given
      with_table("id int, name varchar(20)") do |db, table|
        buffer = +""
        sql = +""
        values = []
        futures = db.pipeline do |p|
          list = Heddle::DB.list(values.replace([buffer.replace("0")]))
          bound = Heddle::DB.bind(sql.replace("select 0 + 0 where ? in (?)"), buffer, list)
          3.times do |n|
            p.query("insert into #{table} values (?, ?)", n, buffer.replace("name #{n}"))
            p.query("insert into #{table} values (:n, :name)", n: n + 3, name: buffer.replace("name #{n + 3}"))
          end
          texts = Array.new(3) { |n| p.query(sql.replace("select #{n} + ?"), 0) }
          sql.clear
          values.clear
          buffer.clear
          [*texts, p.query(bound)]
        end
        assert_equal [0, 1, 2, 0], futures.map { |future| future.value[0][0] }
        assert_equal Array.new(6) { |n| "name #{n}" }, db.query_column("select name from #{table} order by id")
      end
    end

    def test_large_values
      with_connection do |db|
        [0, 250, 251, 65_535, 65_536, 1_000_000].each do |size|
          value = "é" * (size / 2) + "x" * (size % 2)
          assert_equal value, db.query_value("select ?", value)
          bytes = Random.new(size).bytes(size)
          assert_equal bytes, db.query_value(same_bytes_sql, bytes)
        end
      end
    end

    def test_a_connection_that_was_closed
      with_connection do |db|
        assert_predicate db, :healthy?
        assert db.ping
        db.close
        db.close
        assert_predicate db, :closed?
        refute_predicate db, :healthy?
        assert_raises(IOError) { db.query("select 1") }
      end
    end

    # ---- time

    def test_a_timeout_stops_the_query
      with_connection(timeout: 0.3, connect_timeout: 10) do |db|
        assert_within(1.5, at_least: 0.25, remeasure: 0) do
          error = assert_raises(Heddle::DeadlineExceeded) { db.query(sleep_sql(20)) }
          assert_includes error.message, "did not answer within this connection's timeout: of 0.3 s"
          assert_includes error.message, ": #{sleep_sql(20)}"
        end
        assert_interrupted(db)
        wait_until_nothing_sleeps
      end
    end

    def test_a_timeout_of_a_prepared_statement
      with_connection(timeout: 0.3, connect_timeout: 10, statement_cache: :always) do |db|
        # On a busy machine the limit may pass while the statement is prepared.
        error = assert_raises(Heddle::DeadlineExceeded) { db.prepare(sleep_sql(20)).query }
        assert_includes error.message, "of 0.3 s"
        assert_includes error.message, ": #{sleep_sql(20)}"
        wait_until_nothing_sleeps
      end
    end

    def test_a_deadline_within_a_timeout_says_nothing_of_it
      with_connection(timeout: 0.6, connect_timeout: 10) do |db|
        error = assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { db.query(sleep_sql(20)) } }
        refute_includes error.message, "timeout:"
        wait_until_nothing_sleeps
      end
    end

    def test_a_deadline_stops_the_query
      with_connection do |db|
        assert_within(1.5, at_least: 0.25, remeasure: 0) do
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { db.query(sleep_sql(20)) } }
        end
        assert_interrupted(db)
        wait_until_nothing_sleeps
      end
    end

    def test_an_exception_raised_from_another_thread
      with_connection do |db|
        thread = Thread.new { in_host { db.query(sleep_sql(20)) } }
        thread.report_on_exception = false
        wait_until_something_sleeps
        thread.raise(RuntimeError, "enough")
        assert_equal "enough", assert_raises(RuntimeError) { thread.value }.message
        assert_interrupted(db)
        wait_until_nothing_sleeps
      end
    end

    def test_a_cancelled_query
      in_run do
        db = connect
        task = Heddle.spawn { db.query(sleep_sql(20)) }
        wait_until_something_sleeps
        task.cancel
        assert task.wait(5)
        assert_interrupted(db)
        wait_until_nothing_sleeps
      end
    end

    # ---- ownership

    def test_two_users_at_once
      in_run do
        db = connect
        task = Heddle.spawn { db.query(sleep_sql(0.3)) }
        error = assert_raises(Heddle::DB::Busy) { db.query("select 1") }
        assert_includes error.message, "Pool"
        assert_equal 1, task.value.size
        assert_equal 1, db.query_value("select 1")
        db.close
      end
    end

    private

    # What becomes of a connection whose query was interrupted. Drivers that cannot take a statement back close it; see
    # #assert_goes_on for the others.
    def assert_interrupted(db)
      assert_predicate db, :closed?
      assert_raises(IOError) { db.query("select 1") }
    end

    def assert_goes_on(db)
      refute_predicate db, :closed?
      assert_predicate db, :healthy?
      assert_equal 1, db.query_value("select 1")
    end

    def refused_at_prepare = "this is no sql"

    # Of class 42 of the SQL standard, where the server has it.
    def state_of_a_missing_table = /\A42/

    # A query whose value is that of its parameter, which is bytes.
    def same_bytes_sql = "select ?"

    def with_connection(**options)
      in_host do
        db = connect(**options)
        yield db
      ensure
        db&.close
      end
    end

    def with_table(columns, **options)
      with_connection(**options) do |db|
        table = "t_#{rand(1 << 40)}"
        db.exec("create table #{table} (#{columns})")
        begin
          yield db, table
        ensure
          connect.tap { |cleaner| cleaner.exec("drop table if exists #{table}") }.close
        end
      end
    end

    def in_run(&block)
      Heddle.run(&block)
    end

    def wait_until_nothing_sleeps
      in_run do
        watcher = connect
        wait_until(what: "the end of the query on the server") { sleepers(watcher).zero? }
        watcher.close
      end
    end

    def wait_until_something_sleeps
      watcher = connect
      wait_until(what: "the query on the server") { sleepers(watcher).positive? }
      watcher.close
    end
  end
end

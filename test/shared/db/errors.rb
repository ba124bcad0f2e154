# frozen_string_literal: true

module DatabaseSuite
  # What the server refuses raises its own class, the same for every database. A class that includes this has
  # #lock_timeout_sql, which limits the session's waits for locks to one second, and #limit_sql(seconds), which bounds
  # the time of the statements that follow; with #with_table and the rest of Queries.
  module Errors
    DB = Heddle::DB
    private_constant :DB

    def test_each_broken_constraint_has_its_error_class
      with_table("id int primary key, name varchar(9) not null, n int, check (n > 0)") do |db, table|
        db.exec("insert into #{table} values (1, 'a', 1)")
        {DB::UniqueViolation => "insert into #{table} values (1, 'b', 2)",
         DB::NotNullViolation => "insert into #{table} values (2, null, 2)",
         DB::CheckViolation => "insert into #{table} values (3, 'c', -1)"}.each do |expected, sql|
          error = assert_raises(DB::ServerError, sql) { db.exec(sql) }
          assert_instance_of expected, error
          assert_kind_of DB::ConstraintViolation, error
          assert_equal sql, error.sql
          refute_predicate error, :retryable?
        end
        assert_equal 1, db.query_value("select count(*) from #{table}")
      end
    end

    def test_a_broken_foreign_key
      with_table("id int primary key") do |db, parent|
        with_table("parent int, foreign key (parent) references #{parent} (id)") do |_, child|
          assert_raises(DB::ForeignKeyViolation) { db.exec("insert into #{child} values (1)") }
          db.exec("insert into #{parent} values (1)")
          db.exec("insert into #{child} values (1)")
          assert_raises(DB::ForeignKeyViolation) { db.exec("delete from #{parent}") }
        end
      end
    end

    def test_a_write_in_a_read_only_transaction
      with_table("id int") do |db, table|
        error = assert_raises(DB::ReadOnly) do
          db.transaction(read_only: true) { db.exec("insert into #{table} values (1)") }
        end
        refute_predicate error, :retryable?
      end
    end

    def test_a_lock_timeout
      with_table("id int primary key, n int") do |db, table|
        db.exec("insert into #{table} values (1, 0)")
        db.transaction do
          db.exec("update #{table} set n = 1 where id = 1")
          waiter = Thread.new do
            other = connect
            other.query(lock_timeout_sql)
            other.exec("update #{table} set n = 2 where id = 1")
          rescue DB::ServerError => error
            error
          ensure
            other&.close
          end
          error = waiter.value
          assert_instance_of DB::LockTimeout, error
          assert_predicate error, :retryable?
        end
      end
    end

    def test_a_statement_that_the_server_stops_at_its_time_limit
      with_connection do |db|
        db.query(limit_sql(0.2))
        error = assert_raises(DB::QueryCanceled) { db.query(endless_sql) }
        refute_predicate error, :retryable?
        assert_predicate db, :healthy?
      end
    end

    # A statement that takes longer than any test.
    def endless_sql = sleep_sql(20)
  end
end

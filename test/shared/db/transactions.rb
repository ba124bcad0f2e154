# frozen_string_literal: true

module DatabaseSuite
  # Transactions, with #with_table and the rest of Queries.
  module Transactions
    def test_a_block_commits_at_its_end
      with_numbers do |db, table|
        assert_equal(:value, db.transaction { |same|
          assert_same db, same
          assert_predicate db, :in_transaction?
          db.exec("insert into #{table} values (1)")
          :value
        })
        refute_predicate db, :in_transaction?
        assert_equal [1], seen(table)
      end
    end

    def test_a_block_left_by_an_error_or_jump_rolls_back
      with_numbers do |db, table|
        leave = {
          error: ->(_) { raise "no" },
          throw: ->(_) { throw :out },
          server: ->(d) { d.query("select * from nowhere_at_all") },
          deadline: ->(_) { Heddle.deadline(0.05) { sleep(5) } }
        }
        leave.each do |name, way|
          catch(:out) do
            db.transaction do
              db.exec("insert into #{table} values (1)")
              way.call(db)
            end
            flunk name
          rescue RuntimeError, Heddle::DB::ServerError, Heddle::DeadlineExceeded
            nil
          end
          refute_predicate db, :in_transaction?
          assert_equal 0, db.transaction_depth
          assert_equal [], seen(table), name
        end
        db.transaction do
          db.exec("insert into #{table} values (1)")
          break
        end
        assert_equal [], seen(table)
        assert_predicate db, :healthy?
      end
    end

    def test_a_deadline_around_a_transaction_still_rolls_it_back
      with_numbers do |db, table|
        assert_raises(Heddle::DeadlineExceeded) do
          Heddle.deadline(1) do # time enough on any machine for the statements before the sleep
            db.transaction do
              db.exec("insert into #{table} values (1)")
              sleep(5)
            end
          end
        end
        assert_equal [], seen(table)
        assert_predicate db, :healthy?
      end
    end

    def test_nested_transactions
      with_numbers do |db, table|
        db.transaction do
          db.exec("insert into #{table} values (1)")
          assert_raises(RuntimeError) do
            db.transaction do
              db.exec("insert into #{table} values (2)")
              db.transaction { db.exec("insert into #{table} values (3)") }
              assert_equal 2, db.transaction_depth
              raise "no"
            end
          end
          db.transaction { db.exec("insert into #{table} values (4)") }
          assert_equal [1, 4], db.query_column("select n from #{table} order by n")
        end
        assert_equal [1, 4], seen(table)
      end
    end

    def test_begin_and_commit_without_a_block
      with_numbers do |db, table|
        assert_same db, db.start_transaction
        db.exec("insert into #{table} values (1)")
        db.start_transaction
        db.exec("insert into #{table} values (2)")
        db.rollback
        db.start_transaction
        db.exec("insert into #{table} values (3)")
        db.commit
        assert_equal [], seen(table)
        db.commit
        assert_equal [1, 3], seen(table)
        db.start_transaction
        db.exec("delete from #{table}")
        db.rollback
        assert_equal [1, 3], seen(table)
        assert_raises(Heddle::DB::TransactionError) { db.commit }
        assert_raises(Heddle::DB::TransactionError) { db.rollback }
        assert_raises(ArgumentError) { db.transaction { db.start_transaction(read_only: true) } }
      end
    end

    def test_a_transaction_with_a_block_ends_only_with_the_block
      with_numbers do |db, table|
        db.transaction do
          assert_raises(Heddle::DB::TransactionError) { db.commit }
          assert_raises(Heddle::DB::TransactionError) { db.rollback }
          db.exec("insert into #{table} values (1)")
        end
        assert_equal [1], seen(table)
        # Begun inside and not ended.
        assert_raises(Heddle::DB::TransactionError) do
          db.transaction do
            db.exec("insert into #{table} values (2)")
            db.start_transaction
          end
        end
        assert_equal [1], seen(table)
        assert_equal 0, db.transaction_depth
      end
    end

    def test_statements_that_would_commit_implicitly_are_refused
      with_numbers do |db, table|
        db.transaction do
          db.exec("insert into #{table} values (1)")
          committing.each do |sql|
            assert_raises(Heddle::DB::TransactionError, sql) { db.query(sql) }
            assert_raises(Heddle::DB::TransactionError, sql) { db.pipeline { |p| p.query(sql) } }
          end
          assert_equal [], seen(table)
        end
        assert_equal [1], seen(table)
      end
    end

    def test_isolation_and_read_only
      with_numbers do |db, table|
        db.transaction(isolation: :serializable) { db.exec("insert into #{table} values (1)") }
        db.transaction(isolation: :read_committed) do
          assert_equal [1], db.query_column("select n from #{table}")
          in_another { |other| other.exec("insert into #{table} values (2)") }
          assert_equal [1, 2], db.query_column("select n from #{table} order by n")
        end
        db.transaction(isolation: :repeatable_read) do
          assert_equal 2, db.query_value("select count(*) from #{table}")
          in_another { |other| other.exec("insert into #{table} values (3)") }
          assert_equal 2, db.query_value("select count(*) from #{table}")
        end
        assert_raises(Heddle::DB::ServerError) do
          db.transaction(read_only: true) { db.exec("insert into #{table} values (4)") }
        end
        assert_equal [1, 2, 3], seen(table)
        assert_raises(ArgumentError) { db.transaction(isolation: :chaos) { flunk } }
        assert_equal [1, 2, 3], seen(table)
      end
    end

    def test_deadlocks_are_retried
      with_counters do |db, table|
        runs = Hash.new(0)
        threads = [[1, 2], [2, 1]].map do |first, second|
          Thread.new do
            mine = connect
            mine.transaction(retry: 20) do
              mine.exec("update #{table} set n = n + 1 where id = ?", first)
              runs[first] += 1
              # The first time, both transactions hold one row before either wants the other's.
              wait_until { runs.size == 2 } if runs[first] == 1
              mine.exec("update #{table} set n = n + 1 where id = ?", second)
            end
          ensure
            mine&.close
          end
        end
        threads.each(&:value)
        assert_equal [2, 2], db.query_column("select n from #{table} order by id")
        assert_operator runs.values.sum, :>, 2, "there was no deadlock"
      end
    end

    def test_a_victim_of_a_deadlock_runs_nothing_more
      with_counters do |db, table|
        has, wants = Thread::Queue.new, Thread::Queue.new
        other = Thread.new do
          in_another do |other|
            survive_deadlocks(other)
            other.start_transaction
            # MySQL gives up the transaction that has less to roll back.
            50.times { |n| other.exec("insert into #{table} values (?, 0)", n + 10) }
            other.exec("update #{table} set n = 5 where id = 2")
            has << true
            wants.pop
            other.exec("update #{table} set n = 5 where id = 1")
            other.rollback
          end
        end
        fall_to_deadlocks(db)
        db.start_transaction
        db.exec("update #{table} set n = 6 where id = 1")
        has.pop
        wants << true
        wait_until { waited_for?(db) }
        error = assert_raises(Heddle::DB::ServerError) { db.exec("update #{table} set n = 6 where id = 2") }
        assert_predicate error, :retryable?
        assert_raises(Heddle::DB::TransactionError) { db.query("select 1") }
        assert_raises(Heddle::DB::TransactionError) { db.commit }
        db.rollback
        other.value
        assert_equal [[1, 0], [2, 0]], db.query("select * from #{table} order by id").rows
      end
    end

    def test_a_connection_in_a_transaction_serves_only_its_owner
      in_run do
        db = connect
        db.transaction do
          Heddle.spawn { assert_raises(Heddle::DB::Busy) { db.query("select 1") } }.value
          Heddle.spawn { assert_raises(Heddle::DB::Busy) { db.transaction { flunk } } }.value
          assert_equal 1, db.query_value("select 1")
        end
        assert_equal 1, Heddle.spawn { db.query_value("select 1") }.value
        db.close
      end
    end

    # They are too many to wait for the next request, which only the owner may make.
    def test_statements_are_closed_while_another_has_a_transaction
      in_run do
        db = connect
        statements = Array.new(66) { |n| db.prepare("select #{n}") }
        db.transaction do
          Heddle.spawn { statements.each(&:close) }.value
          assert_equal 1, db.query_value("select 1")
        end
        assert statements.all?(&:closed?)
        db.close
      end
    end

    def test_statements_are_cached_in_transactions
      with_connection do |db|
        3.times { db.query("select ?", 1) }
        assert_equal 0, db.cached_statements
        db.transaction do
          3.times { |n| assert_equal n, db.query_value("select ? + 0", n) }
          assert_equal 1, db.cached_statements
          db.query("select 1, ?", 1)
          assert_equal 2, db.cached_statements
          db.query("select 1, ?", 2)
          assert_equal 2, db.cached_statements
        end
        db.query(forgetting_sql)
        assert_equal 0, db.cached_statements
      end
      with_connection(statement_cache: :always, statement_cache_size: 3) do |db|
        10.times { |n| assert_equal n, db.query_value("select #{n % 5} + ?", n - n % 5) }
        assert_equal 3, db.cached_statements
      end
      with_connection(statement_cache: :never) do |db|
        db.transaction { 3.times { db.query("select ?", 1) } }
        assert_equal 0, db.cached_statements
      end
      assert_raises(ArgumentError) { connect(statement_cache: :sometimes) }
    end

    private

    # For servers where the one that finds the deadlock is given up.
    def survive_deadlocks(db) = db

    def fall_to_deadlocks(db) = db

    # Whether another session waits for a lock of this one. Only where it matters who is the first to wait.
    def waited_for?(_db) = true

    def with_numbers(&block)
      with_table("n int primary key", &block)
    end

    def with_counters
      with_table("id int primary key, n int") do |db, table|
        db.exec("insert into #{table} values (1, 0), (2, 0)")
        yield db, table
      end
    end

    def in_another
      db = connect
      yield db
    ensure
      db&.close
    end

    def seen(table)
      in_another { |db| db.query_column("select n from #{table} order by n") }
    end
  end
end

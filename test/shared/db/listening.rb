# frozen_string_literal: true

module DatabaseSuite
  # on_query of a connection, of a pool and of the process, with #connect, #pool and the rest of Queries.
  module Listening
    def test_each_statement_is_reported
      with_table("id int") do |db, table|
        events = heard(db) do
          db.exec("insert into #{table} values (?), (?)", 1, 2)
          db.query("select id from #{table} where id > ?", 0)
          db.query_value("select count(*) from #{table}")
        end
        assert_equal ["insert into #{table} values (?), (?)", "select id from #{table} where id > ?",
          "select count(*) from #{table}"], events.map(&:sql)
        assert_equal [2, 2, 1], events.map(&:rows)
        assert_equal [nil] * 3, events.map(&:error)
        assert_equal [false] * 3, events.map(&:cached)
        events.each { |event| assert_operator event.seconds, :>, 0 }
        assert_empty(heard(db) {})
      end
    end

    def test_errors_are_reported
      with_connection do |db|
        errors = []
        events = heard(db) do
          errors << assert_raises(Heddle::DB::ServerError) { db.query("select * from nowhere_at_all") }
          errors << assert_raises(TypeError) { db.query("select ?", Object.new) }
          errors << assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.query(sleep_sql(20)) } }
          db.close
          errors << assert_raises(IOError) { db.query("select 1") }
        end
        assert_equal errors, events.map(&:error)
        assert_equal [nil] * 4, events.map(&:rows)
        assert_operator events[2].seconds, :>=, 0.05
      end
      wait_until_nothing_sleeps
    end

    # The statement has been done: the transaction is as the server has it, and no part of it is left open.
    def test_a_listener_that_is_interrupted_at_an_end_of_a_transaction
      with_table("id int") do |db, table|
        at = nil
        db.on_query { |event| raise(Interrupt, "here") if event.sql == at }
        ["start transaction", "commit"].each do |statement|
          at = statement
          assert_raises(Interrupt) { db.transaction { db.exec("insert into #{table} values (1)") } }
          assert_equal [0, false, false], [db.transaction_depth, db.in_transaction?, db.needs_rollback?], statement
        end
        assert_equal 1, db.query_value("select count(*) from #{table}")
        at = "start transaction"
        assert_raises(Interrupt) { db.start_transaction }
        assert_equal [0, false], [db.transaction_depth, db.in_transaction?]
        assert_predicate db, :healthy?
      end
    end

    def test_kept_statements_are_reported_as_cached
      with_connection(statement_cache: :always) do |db|
        statement = db.prepare("select 7 + ?")
        events = heard(db) do
          2.times { db.query("select ?", 1) }
          2.times { statement.query(1) }
        end
        assert_equal [false, true, true, true], events.map(&:cached)
        assert_equal "select 7 + ?", events.last.sql
      end
    end

    def test_cursors_and_pipelines_are_reported
      with_connection do |db|
        events = heard(db) do
          db.each_row(series(10), fetch: 3) { |_| nil }
          db.each_row(series(10), fetch: 3) { |_| break }
          db.pipeline { |p| [p.query("select 1"), p.query("select * from nowhere_at_all"), p.query("select ?", 2)] }
        end
        assert_equal [series(10)] * 2 + ["select 1", "select * from nowhere_at_all", "select ?"], events.map(&:sql)
        assert_equal [10, 3, 1, nil, 1], events.map(&:rows)
        assert_equal [0, 0, 0, 1, 0], events.map { |event| [event.error].grep(Heddle::DB::ServerError).size }
      end
    end

    def test_the_statements_of_transactions_are_reported
      with_connection do |db|
        events = heard(db) do
          db.transaction { db.transaction { db.query("select 1") } }
          assert_raises(RuntimeError) { db.transaction { raise "no" } }
        end
        assert_equal ["start transaction", "savepoint", "select 1", "release savepoint", "commit",
          "start transaction", "rollback"], events.map(&:sql)
      end
    end

    # Neither its error nor its own queries change what the program sees.
    def test_an_error_of_a_handler
      with_connection do |db|
        calls = 0
        listener = db.on_query do
          calls += 1
          db.query("select 2")
          raise "the handler's"
        end
        _, printed = capture_io do
          assert_equal [1, 1], Array.new(2) { db.query_value("select 1") }
          assert_raises(Heddle::DB::ServerError) { db.query("select * from nowhere_at_all") }
        end
        assert_equal [3, 1], [calls, printed.scan("the handler's").size]
        listener.close
        listener.close
        assert_equal 1, db.query_value("select 1")
        assert_equal 3, calls
        assert_raises(ArgumentError) { db.on_query }
      end
    end

    # What Thread#raise, or a Timeout with a class, raises in the thread is no error of the handler that runs just then.
    def test_an_interrupt_during_a_handler
      interrupted = Class.new(StandardError)
      with_connection do |db|
        next if Fiber.current_scheduler # nothing interrupts a task while it runs

        db.on_query { Thread.current.raise(interrupted) }
        assert_raises(interrupted) { db.query("select 1") }
      end
    end

    def test_a_pool_and_the_process_report_all_their_connections
      with_pool(size: 3) do |pool|
        other = connect
        everywhere = Thread::Queue.new
        all = Heddle::DB.on_query { |event| everywhere << event.sql }
        events = heard(pool) do
          each_at_once(6) { |n| pool.query("select #{n}") }
          other.query("select 7")
        end
        assert_equal Array.new(6) { |n| "select #{n}" }, events.map(&:sql).sort
        seen = Array.new(everywhere.size) { everywhere.pop }
        assert_equal Array.new(6) { |n| "select #{n}" } << "select 7", seen.sort.grep(/\Aselect \d\z/)
      ensure
        all&.close
        other&.close
      end
    end

    private

    # What a connection or a pool reports of the block.
    def heard(source)
      queue = Thread::Queue.new
      listener = source.on_query { |event| queue << event }
      yield
      Array.new(queue.size) { queue.pop }
    ensure
      listener&.close
    end
  end
end

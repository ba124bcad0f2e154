# frozen_string_literal: true

module DatabaseSuite
  # How a pool keeps its connections, with #session_setting, #kill_sql and the rest of Pools.
  module KeptPools
    OWN_ID = Heddle::DB.virtual_statement(mysql: "select connection_id()", postgresql: "select pg_backend_pid()")
    private_constant :OWN_ID

    def test_connections_end_after_their_lifetime
      with_pool(size: 1, max_lifetime: 0.1) do |pool|
        over = -> { (began = monotonic) && wait_until(what: "the lifetime") { monotonic - began > 0.1 } }
        first = pool.with { |db| db }
        over.call
        second = pool.with { |db| db }
        refute_same first, second
        assert_predicate first, :closed?
        # One that is in use is closed when it is returned.
        third = pool.with { |db| db.tap { over.call } }
        assert_predicate third, :closed?
        assert_equal({connections: 0, free: 0, waiting: 0}, pool.stats)
      end
      with_pool(size: 1, max_lifetime: 60) { |pool| assert_same pool.with { |db| db }, pool.with { |db| db } }
    end

    def test_a_pool_keeps_its_least_number_of_connections
      with_pool(size: 4, min: 2, idle: 0.05) do |pool|
        each_at_once(4) { pool.query(sleep_sql(0.1)) }
        wait_until(what: "a pool without its surplus of connections") do
          pool.query("select 1")
          pool.stats[:connections] <= 2
        end
        sleep(0.1)
        pool.query("select 1")
        assert_equal 2, pool.stats[:connections]
      end
      in_host do
        assert_includes assert_raises(ArgumentError) { pool(size: 2, min: 3) }.message, "min:"
        assert_raises(ArgumentError) { pool(max_lifetime: 0) }
      end
    end

    def test_statements_on_each_new_connection
      set, get, value, = session_setting
      with_pool(size: 2, init: ["select 1", set]) do |pool|
        assert_equal [value] * 2, pool.with { |one| pool.with { |two| [one, two].map { |db| db.query_value(get) } } }
        first = pool.with { |db| db }
        # The session is as every user expects it: nothing is put back.
        refute_predicate first.driver, :session_changed?
        # What a caller changes is put back to what the statements set.
        _, _, _, other = session_setting
        pool.with { |db| db.query(set.sub(/= .*/, "= default")) && assert_equal(other, db.query_value(get)) }
        assert_equal [value] * 2, Array.new(2) { pool.query_value(get) }
      end
      with_connection(init: set) { |db| assert_equal value, db.query_value(get) }
    end

    def test_statements_that_a_new_connection_cannot_run
      with_pool(size: 1, init: "this is no sql") do |pool|
        error = assert_raises(Heddle::DB::LoginFailed) { pool.query("select 1") }
        assert_match(/init:.*this is no sql/m, error.message)
        assert_kind_of Heddle::DB::ServerError, error.cause
        assert_equal({connections: 0, free: 0, waiting: 0}, pool.stats)
      end
      [1, [nil], [""]].each { |init| assert_raises(ArgumentError) { connect(init: init) } }
    end

    def test_idle_connections_that_the_server_ended_are_replaced
      with_pool(size: 3) do |pool|
        ends = Thread::Queue.new
        each_at_once(3) { pool.with { |db| ends << [db, db.query_value(OWN_ID)] && db.query(sleep_sql(0.1)) } }
        ended = Array.new(ends.size) { ends.pop }
        connect.tap { |killer| ended.uniq.each { |_, id| killer.query(kill_sql(id)) } }.close
        ended.each { |db, _| wait_until(what: "the end of a connection") { !db.healthy? } }
        each_at_once(6) { |n| assert_equal n, pool.query_value("select ?", n) }
        assert_equal 3, pool.stats[:connections]
      end
    end

    def test_statements_of_a_pool
      with_table("id int") do |_, table|
        with_pool(size: 3) do |pool|
          insert = pool.prepare("insert into #{table} values (?)")
          select = pool.prepare("select count(*) from #{table} where id >= ?")
          reports = Thread::Queue.new
          pool.on_query { |event| reports << [event.sql, event.cached] }
          each_at_once(12) { |n| assert_equal 1, insert.exec(n) }
          assert_equal [12, 2], [0, 10].map { |n| select.query(n).rows[0][0] }
          pool.transaction do
            insert.exec(100)
            assert_equal 13, select.query(0).rows[0][0]
          end
          reports = Array.new(reports.size) { reports.pop }.select { |sql, _| sql.start_with?("insert") }
          assert_operator reports.count([reports[0][0], false]), :<=, 3
          assert_operator reports.count([reports[0][0], true]), :>=, 10
          wrong = pool.prepare("this is no sql")
          assert_equal "this is no sql", assert_raises(Heddle::DB::ServerError) { wrong.query }.sql
          assert_raises(ArgumentError) { select.query }
          assert_raises(TypeError) { pool.prepare(nil) }
          pool.close
          assert_raises(Heddle::PoolClosed) { select.query(1) }
        end
      end
    end
  end
end

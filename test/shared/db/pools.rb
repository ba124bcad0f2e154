# frozen_string_literal: true

module DatabaseSuite
  # Heddle::DB::Pool, with #pool(**options) and the rest of Queries.
  module Pools
    def test_a_connection_serves_one_borrower_after_another
      with_pool(size: 2) do |pool|
        first = pool.with { |db| db }
        second = pool.with { |db| db }
        assert_same first, second
        assert_equal({connections: 1, free: 1, waiting: 0}, pool.stats)
        assert_equal 3, pool.query_value("select ? + 1", 2)
        assert_equal [[1]], pool.query("select 1").rows
        assert_equal(:value, pool.transaction { :value })
        assert_equal [1], pool.pipeline { |p| [p.query("select 1")] }.map { |f| f.value.rows[0][0] }
        seen = []
        pool.each_row(series(5)) { |row| seen.concat(row) }
        assert_equal [1, 2, 3, 4, 5], seen
        assert_raises(Heddle::DB::Busy) { first.query("select 1") }
      end
    end

    def test_never_more_connections_than_its_size
      with_pool(size: 3) do |pool|
        each_at_once(20) { pool.query(sleep_sql(0.01)) }
        assert_equal({connections: 3, free: 3, waiting: 0}, pool.stats)
      end
    end

    # A task that asks again after its turn comes behind all that wait.
    def test_the_longest_waiter_gets_the_next_connection
      with_pool(size: 1) do |pool|
        order = Thread::Queue.new
        each_at_once(5) do |n|
          next pool.with { wait_until { pool.stats[:waiting] == 4 } } if n == 4

          wait_until { pool.stats[:free] == 0 && pool.stats[:connections] == 1 }
          2.times { pool.with { |db| order << n && db.query(sleep_sql(0.005)) } }
        end
        turns = Array.new(order.size) { order.pop }
        assert_equal 4, turns.first(4).uniq.size, turns.inspect
      end
    end

    def test_a_wait_for_a_connection_times_out
      with_pool(size: 1, checkout_timeout: 0.2) do |pool|
        pool.with do
          error = assert_within(2, at_least: 0.15) { assert_raises(Heddle::DB::PoolTimeout) { pool.query("select 1") } }
          assert_includes error.message, "size:"
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { pool.query("select 1") } }
        end
        assert_equal 1, pool.query_value("select 1")
        assert_equal({connections: 1, free: 1, waiting: 0}, pool.stats)
      end
    end

    # The block goes on behind the loss of its connection in a nested transaction.
    def test_nothing_of_a_lost_transaction_goes_to_another_connection
      with_numbers do |_, table|
        with_pool(size: 2) do |pool|
          ways = [->(db) { db.transaction { db.close } }, ->(db) { db.start_transaction.close || db.rollback }]
          ways.each do |lose|
            assert_raises(Heddle::DB::ConnectionLost) do
              pool.transaction do |db|
                assert_raises(Heddle::DB::ConnectionLost) { lose.call(db) }
                assert_equal 1, db.transaction_depth
                assert_raises(Heddle::DB::ConnectionLost) { pool.exec("insert into #{table} values (1)") }
              end
            end
          end
          assert_equal [], seen(table)
          assert_equal 1, pool.exec("insert into #{table} values (1)")
        end
      end
    end

    def test_a_busy_connection_is_not_handed_on
      with_pool(size: 1) do |pool|
        pool.with do |db|
          db.start_transaction
        end
        assert_equal({connections: 0, free: 0, waiting: 0}, pool.stats)
        refute(pool.with { |db| db.in_transaction? })
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { pool.query(sleep_sql(20)) } }
        assert_equal 1, pool.query_value("select 1")
        pool.with(&:close)
        assert_equal 1, pool.query_value("select 1")
        wait_until_nothing_sleeps
      end
    end

    # The connection may be in the next user's transaction by then.
    def test_an_enumerator_used_after_checkin_is_refused
      with_pool(size: 1) do |pool|
        rows = nil
        pool.with do |db|
          rows = db.each_row(series(50), fetch: 2)
          assert_equal [1], rows.next
        end
        pool.transaction do |db|
          assert_raises(Heddle::DB::Busy) { 50.times { rows.next } }
          refute_predicate db, :needs_rollback?
          assert_equal 1, db.query_value("select 1")
        end
      end
    end

    # An Enumerator that nobody continues, and one that begins again, have left their fibers in the middle of rows.
    def test_an_enumerator_that_was_dropped_gives_its_place_back
      with_pool(size: 2) do |pool|
        rows = nil
        2.times do
          on_another_stack { assert_equal [1], pool.each_row(series(50), fetch: 2).next }
          on_another_stack do
            rows = pool.each_row(series(50), fetch: 2)
            assert_equal [1], rows.next
            rows.rewind
          end
          wait_until(what: "the places") { GC.start.nil? && pool.stats[:free] == pool.stats[:connections] }
        end
        assert_equal [[1], [2]], Array.new(2) { rows.next }
        GC.start
        assert_equal 1, pool.query_value("select 1")
        assert_equal (3..50).to_a, Array.new(48) { rows.next.first }
        assert_raises(StopIteration) { rows.next }
        assert_equal 1, pool.with { pool.query_value("select 1") }
      end
    end

    # So have Enumerators of the program's own, in the middle of a block with a connection or of a transaction.
    def test_a_block_that_was_dropped_gives_its_place_back
      with_pool(size: 1, checkout_timeout: 5) do |pool|
        blocks = [->(rows) { pool.with { |db| rows << db.query_value("select 1") << 2 } },
          ->(rows) { pool.transaction { |db| rows << db.query_value("select 1") << 2 } },
          ->(rows) { pool.with { |db| db.transaction { rows << db.query_value("select 1") << 2 } } }]
        blocks.each do |block|
          on_another_stack { assert_equal 1, Enumerator.new(&block).next }
          wait_until(what: "the place") { GC.start.nil? && pool.stats[:free] == pool.stats[:connections] }
          refute pool.with(&:in_transaction?)
          assert_equal [1, 2], Enumerator.new(&block).to_a
        end
      end
    end

    # The GC takes what an earlier call has left on a stack for a reference.
    def on_another_stack(&) = Thread.new(&).join

    def test_idle_connections_are_closed
      with_pool(size: 2, idle: 0.05) do |pool|
        first = pool.with { |db| db }
        sleep(0.1)
        refute_same first, pool.with { |db| db }
        assert_predicate first, :closed?
      end
    end

    def test_a_closed_pool
      with_pool(size: 1) do |pool|
        pool.with do
          pool.close
        end
        assert_predicate pool, :closed?
        assert_raises(Heddle::PoolClosed) { pool.query("select 1") }
        assert_equal({connections: 0, free: 0, waiting: 0}, pool.stats)
      end
    end

    def test_failed_connects_free_their_places
      in_host do
        pool = pool(size: 1, database: "there_is_no_such_base")
        3.times { assert_raises(Heddle::DB::LoginFailed) { pool.query("select 1") } }
        assert_equal({connections: 0, free: 0, waiting: 0}, pool.stats)
      end
    end

    # The bench has the figure; here three times the ideal is enough.
    def test_fifty_borrowers_at_once
      with_pool(size: 50) do |pool|
        each_at_once(50) { pool.query("select 1") }
        assert_within(3 * 0.2, remeasure: 3) { each_at_once(50) { pool.query(sleep_sql(0.2)) } }
      end
    end

    private

    def with_pool(**options)
      in_host do
        pool = pool(**options)
        yield pool
      ensure
        pool&.close
      end
    end

    # Starts +count+ tasks, or threads.
    def each_at_once(count, &block)
      return count.times.map { |n| Thread.new { block.call(n) } }.each(&:value) unless Fiber.scheduler

      count.times.map { |n| Heddle.spawn { block.call(n) } }.each(&:value)
    end
  end
end

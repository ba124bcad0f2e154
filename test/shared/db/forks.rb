# frozen_string_literal: true

module DatabaseSuite
  # A child of fork has its parent's sockets, but must not use them: with both using one, each would read the other's
  # rows. A class that includes this has #url, #ways (options that connect in different ways), and the SQL of its
  # database: #own_id_sql, #text_sql, #number_sql and #sum_sql (one more) of a parameter, #series_sql (1 to 10) and
  # #seven_later_sql; and #forking, a value that calls its block when it is bound.
  module Forks
    def connect(**options)
      Heddle::DB.connect(url, timeout: stretched(10), **options)
    end

    # @return the block's value in a child, or the error that it raised
    def in_child
      reader, writer = IO.pipe
      pid = fork do
        reader.close
        value = begin
          yield
        rescue Exception => error # rubocop:disable Lint/RescueException
          [error.class.name, error.message]
        end
        writer.write(Marshal.dump(value))
      ensure
        writer.close
        exit!(0)
      end
      writer.close
      Marshal.load(reader.read) # rubocop:disable Security/MarshalLoad
    ensure
      reader.close
      Process.wait(pid)
    end

    def refused
      yield
      "it was not refused"
    rescue Heddle::DB::ConnectionLost => error
      error.message
    end

    def assert_refused(*messages)
      messages.flatten.each do |message|
        assert_match(/belongs to the parent process.*connect again in the child/, message)
      end
    end

    def with_connection(**options)
      db = connect(**options)
      thread = db.query_value(own_id_sql)
      yield db
      assert_equal thread, db.query_value(own_id_sql), "the parent's connection still works"
      assert_predicate db, :healthy?
      db.close
    end

    # The value is made in the middle of an operation that began in the parent.
    def test_a_value_that_forks
      [:never, :always].each do |cache|
        with_connection(statement_cache: cache) do |db|
          reader, writer = IO.pipe
          pid = :parent
          value = forking { pid = fork }
          begin
            message = refused { db.query(text_sql, value) }
          ensure
            writer.write(message.to_s) unless pid
            exit!(0) unless pid
          end
          writer.close
          assert_equal "it was not refused", message
          assert_refused reader.read
          Process.wait(pid)
        end
      end
    end

    def test_parent_and_child_read_their_own_rows
      with_connection(statement_cache: :always) do |db|
        db.query_value(text_sql, "warm")
        messages = in_child { Array.new(3) { |n| refused { db.query_value(text_sql, "child #{n}") } } }
        assert_refused messages
        200.times { |n| assert_equal "parent #{n}", db.query_value(text_sql, "parent #{n}") }
      end
    end

    def test_every_use_in_a_child_is_refused_and_nothing_is_sent
      ways.each do |way|
        with_connection(**way) do |db|
          statement = db.prepare(sum_sql)
          uses = {query: -> { db.query("select 1") }, ping: -> { db.ping }, prepare: -> { db.prepare("select 1") },
                  statement: -> { statement.query(1) }, cursor: -> { db.each_row("select 1") { |_| flunk } },
                  pipeline: -> { db.pipeline { |p| p.query("select 1") } },
                  transaction: -> { db.transaction { flunk } }}
          uses.each do |name, use|
            seen = in_child { [refused(&use), db.closed?, db.healthy?, db.at_rest?, db.in_transaction?, db.close] }
            assert_refused seen.shift
            assert_equal [true, false, false, false, nil], seen, name
          end
          assert_nil(in_child { statement.close })
          assert_nil(in_child { db.close })
          assert_equal 2, statement.query(1)[0][0]
        end
      end
    end

    def test_a_child_of_a_child
      with_connection do |db|
        assert_refused(in_child { in_child { refused { db.query("select 1") } } })
        own = in_child do
          mine = connect
          [in_child { refused { mine.query("select 1") } }, mine.query_value("select 2")]
        end
        assert_refused own.shift
        assert_equal [2], own
      end
    end

    def test_in_the_middle_of_a_transaction
      with_connection do |db|
        db.exec("create temporary table forked (n int)")
        db.transaction do
          db.exec("insert into forked values (1)")
          messages = in_child {
            [refused { db.transaction { db.query("select 1") } }, refused { db.exec("insert into forked values (2)") }]
          }
          assert_refused messages
          assert_predicate db, :in_transaction?
        end
        assert_equal [1], db.query_column("select * from forked")
      end
    end

    # The child leaves the block itself: it must send neither COMMIT nor ROLLBACK.
    def test_a_child_that_leaves_the_block
      with_connection do |db|
        db.exec("create temporary table forked (n int)")
        reader, writer = IO.pipe
        pid = nil
        begin
          db.transaction do
            db.exec("insert into forked values (1)")
            pid = fork
            Process.wait(pid) if pid
          end
          message = "committed"
        rescue Heddle::DB::ConnectionLost => error
          message = error.message
        end
        unless pid
          writer.write(message)
          writer.close
          exit!(0)
        end
        writer.close
        assert_refused reader.read
        reader.close
        assert_equal "committed", message
        assert_equal [1], db.query_column("select * from forked")
      end
    end

    def test_in_the_middle_of_a_cursor_and_of_a_pipeline
      with_connection do |db|
        seen = []
        db.each_row(series_sql, fetch: 2) do |(n)|
          assert_refused(in_child { refused { db.query("select 1") } }) if n == 3
          seen << n
        end
        assert_equal (1..10).to_a, seen
        futures = db.pipeline(limit: 2) do |p|
          Array.new(5) do |n|
            assert_refused(in_child { refused { p.finish } }) if n == 3
            p.query(number_sql, n)
          end
        end
        assert_equal (0..4).to_a, futures.map { |future| future.value[0][0] }
      end
    end

    def test_in_tasks_and_beside_one_that_waits
      Heddle.run do
        with_connection do |db|
          waiting = Heddle.spawn { db.query_value(seven_later_sql) }
          Heddle.spawn { assert_refused(in_child { refused { db.query("select 1") } }) }.value
          assert_equal 7, waiting.value
          db.transaction { assert_refused(in_child { refused { db.query("select 1") } }) }
        end
      end
    end

    def test_a_pool_in_a_child_starts_empty_and_works
      pool = Heddle::DB::Pool.new(url, size: 2, timeout: stretched(10))
      thread = pool.query_value(own_id_sql)
      child = in_child { [pool.stats, pool.query_value(own_id_sql), pool.stats] }
      assert_equal [{connections: 0, free: 0, waiting: 0}, {connections: 1, free: 1, waiting: 0}], child.values_at(0, 2)
      refute_equal thread, child[1]
      pool.with do |db|
        other = in_child { [refused { db.query("select 1") }, pool.query_value("select 2"), pool.stats] }
        assert_refused other.shift
        assert_equal [2, {connections: 1, free: 1, waiting: 0}], other
      end
      assert_equal thread, pool.query_value(own_id_sql)
      assert_equal({connections: 1, free: 1, waiting: 0}, pool.stats)
      left = in_child { leave_in_a_child(pool) }
      assert_equal [{connections: 0, free: 0, waiting: 0}, 3], left
      assert_nil(in_child { pool.close })
      assert_equal thread, pool.query_value(own_id_sql)
      pool.close
    end

    def leave_in_a_child(pool)
      pool.with do |_|
        reader, writer = IO.pipe
        pid = fork
        if pid
          writer.close
          Process.wait(pid)
          return Marshal.load(reader.read) # rubocop:disable Security/MarshalLoad
        end
        @writer = writer
      end
      @writer.write(Marshal.dump([pool.stats, pool.query_value("select 3")]))
      @writer.close
      exit!(0)
    end

    # After a second the child's thread that keeps deadlines would send closes, if the parent's statements were its own.
    def test_no_close_comes_from_a_child
      with_connection do |db|
        statement = db.prepare(sum_sql)
        in_child do
          statement.close
          Heddle.deadline(5) { sleep(2.5) }
        end
        assert_equal 3, statement.query(2)[0][0]
      end
    end
  end
end

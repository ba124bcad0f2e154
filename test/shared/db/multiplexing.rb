# frozen_string_literal: true

require "support/collections"
require "support/least_scheduler"

# Statements of several tasks in flight on the connections of a pool.
#
# A test says in methods what differs: #url, #tls_options, #session_id (an SQL expression), #echo_int, #echo_text and
# #slow_echo (SQL with a value, which it returns), #repeat (SQL with a text, which it repeats as often as that),
# #waiting_sql (how many statements like UPDATE wait for a lock), #end_waiting (ends their sessions), #session_setting
# (see the dialects), #lock_sql (takes a named lock), #locks (how many there are), #largest (bytes of a value that
# shares a connection).
module DatabaseMultiplexing
  include Collections

  DB = Heddle::DB
  UPDATE = "update shared set n = n + 1 where id = ?"

  # Each test has a table of its own.
  def with_pool(url = self.url, size: 1, multiplex: 8, **options)
    Heddle.run do
      @other, @watching = DB.connect(url), DB.connect(url)
      @other.query("drop table if exists shared")
      @other.query("create table shared (id int primary key, n int)")
      @other.query("insert into shared values #{(1..20).map { |id| "(#{id}, 0)" }.join(", ")}")
      pool = DB::Pool.new(url, size: size, multiplex: multiplex, **options)
      pool.with { |db| db.query(own_id) } # connected before a deadline is set
      yield pool
    ensure
      pool&.close
      [@other, @watching].each { |db| db&.close }
    end
  end

  def own_id = "select #{session_id}"

  def spawn_all(items, &block) = items.map { |item| Heddle.spawn { block.call(item) } }

  # The value or the error of each.
  def answers(items, &block)
    spawn_all(items) { |item| answer { block.call(item) } }.map(&:value)
  end

  def answer
    yield
  rescue => error
    error
  end

  # Holds the row while the block runs: an update of it waits in the server.
  def locked(id = 1)
    @other.transaction do
      @other.exec("update shared set n = n + 100 where id = ?", id)
      yield
    end
  end

  # In a transaction the server would tell of one moment only.
  def waiting_updates(count)
    wait_until(what: "#{count} updates that wait") { @watching.query_value(waiting_sql) == count }
  end

  # Statements that share, and users of whole connections whose ends give the waiting a place.
  def test_collections_at_each_allocation
    assert_right_under_collections(<<~RUBY, {"URL" => url, "ECHO" => echo_int, "RUBYLIB" => bigdecimal})
      require "heddle/db"
      pool = Heddle::DB::Pool.new(ENV.fetch("URL"), size: 2, multiplex: 2, checkout_timeout: nil)
      echo = ENV.fetch("ECHO")
      ask = lambda do |id|
        next pool.query_value(echo, id) == id if id.odd?

        pool.with { |db| db.query_value(echo, id) } == id
      end
      all = lambda { |_ = nil| (1..8).map { |id| Heddle.spawn { ask.call(id) } }.map(&:value) }
      2.times(&all)
      stress(true) { all.call }
    RUBY
  end

  def test_statements_of_many_tasks_share_a_connection
    with_pool do |pool|
      tasks = spawn_all(0...100) { |n| pool.query("#{echo_int}, #{session_id}", n).first }
      all = tasks.map(&:value)
      assert_equal (0...100).to_a, all.map(&:first)
      assert_equal 1, all.map(&:last).uniq.size
      assert_equal({connections: 1, free: 1, waiting: 0}, pool.stats)
    end
  end

  def test_only_so_many_are_in_flight
    with_pool(multiplex: 3) do |pool|
      tasks = nil
      locked do
        tasks = spawn_all(1..5) { |id| pool.exec(UPDATE, id) }
        waiting_updates(1)
        assert_equal({connections: 1, free: 0, waiting: 2}, pool.stats)
      end
      assert_equal [1] * 5, tasks.map(&:value)
    end
  end

  def test_an_idle_connection_comes_before_a_shared_one
    with_pool(size: 3) do |pool|
      pids = spawn_all(1..3) { pool.query_row(slow_echo(", #{session_id}"), "x").last }.map(&:value)
      assert_equal 3, pids.uniq.size
    end
  end

  # The second one is refused before it begins, where that is a reply of its own.
  def test_an_error_is_its_askers_alone
    with_pool do |pool|
      insert, unknown = "insert into shared values (?, 7)", "select nothing from shared where id = ?"
      all = answers(0..9) do |n|
        case n % 3
        when 0 then pool.query(insert, 1)
        when 1 then pool.query(unknown, n)
        else pool.query_value(echo_int, n)
        end
      end
      all.each_with_index do |answer, n|
        next assert_equal(n, answer) if n % 3 == 2

        expected = (n % 3).zero? ? [DB::UniqueViolation, insert] : [DB::ServerError, unknown]
        assert_equal expected, [answer.class, answer.sql]
      end
    end
  end

  def test_a_value_that_cannot_be_bound_is_its_askers_alone
    with_pool do |pool|
      all = answers([1, Object.new, 2]) { |value| pool.query_value(echo_int, value) }
      assert_equal [1, TypeError, 2], all.map { |one| one.is_a?(Integer) ? one : one.class }
      assert_raises(ArgumentError) { pool.query("select ?", 1, 2) }
    end
  end

  # ---- whole connections

  def test_what_changes_a_session_has_a_connection_of_its_own
    with_pool do |pool|
      set, show, _, usual = session_setting
      pool.query(set)
      pool.query(lock_sql)
      values = spawn_all(1..4) { pool.query_value(show) }.map(&:value)
      assert_equal [usual], values.uniq
      assert_equal 0, locks(pool)
    end
  end

  def test_a_transaction_is_alone_on_its_connection
    with_pool(size: 2) do |pool|
      pid = nil
      pool.transaction do |db|
        pid = db.query_value(own_id)
        assert_equal pid, pool.query_value(own_id) # the task's own
        pool.exec(UPDATE, 1)
        others = spawn_all(1..5) { pool.query_row("select #{session_id}, n from shared where id = 1") }.map(&:value)
        assert_equal [0], others.map(&:last).uniq
        refute_includes others.map(&:first), pid
        raise "undone"
      end
    rescue RuntimeError
      assert_equal 0, pool.query_value("select n from shared where id = 1")
    end
  end

  # Neither waits for the end of a stream of the others.
  def test_whole_connections_and_shared_ones_take_turns
    with_pool do |pool|
      over = false
      streams = spawn_all(1..6) { pool.query("select 1") until over }
      Heddle.deadline(20) { 5.times { pool.transaction { |db| db.query("select 2") } } }
      over = true
      streams.each(&:wait)
      over = false
      streams = spawn_all(1..3) { pool.transaction { |db| db.query("select 2") } until over }
      Heddle.deadline(20) { spawn_all(1..6) { 5.times { pool.query("select 1") } }.each(&:value) }
      over = true
      streams.each(&:value)
    end
  end

  def test_each_row_within_statements_in_flight
    with_pool do |pool|
      tasks = spawn_all(1..4) { |n| pool.query_value(slow_echo, n.to_s) }
      assert_equal 20, pool.each_row("select id from shared", fetch: 3).to_a.size
      assert_equal %w[1 2 3 4], tasks.map(&:value)
    end
  end

  # ---- askers that leave

  def ways_to_leave
    {deadline: ->(asker) { Heddle.spawn { answer { Heddle.deadline(0.2) { asker.call } } } },
     cancel: ->(asker) { Heddle.spawn(&asker).tap { |task| Heddle.spawn { sleep(0.2) && task.cancel } } },
     timeout: ->(asker) { Heddle.spawn { answer { Timeout.timeout(0.2) { asker.call } } } }}
  end

  # At the head of the line, and in it.
  def test_an_asker_that_leaves_gives_up_its_answer_alone
    ways_to_leave.each do |name, way|
      [1, 2].each do |leaves|
        with_pool do |pool|
          pid = pool.query_value(own_id)
          tasks = nil
          locked do
            tasks = [1, 2, 3].map do |id|
              asker = -> { [pool.exec(UPDATE, id), id] }
              (id == leaves) ? way.call(asker) : Heddle.spawn(&asker)
            end
            wait_until { %i[completed cancelled].include?(tasks[leaves - 1].status) }
          end
          stay = [1, 2, 3] - [leaves]
          assert_equal stay.map { |id| [1, id] }, stay.map { |id| tasks[id - 1].value }, name
          assert_kind_of Timeout::Error, tasks[leaves - 1].value unless name == :cancel
          # Nothing was cancelled, and nothing is in the wrong place.
          counts = @other.query_column("select n from shared where id < 4 order by id")
          assert_equal [101, 1, 1], counts, name
          assert_equal pid, pool.query_value(own_id), name
          assert_equal 1, pool.query_value("select 1")
        end
      end
    end
  end

  # It has written, and lets the others write. The answer of the first in line is yet to come.
  def test_the_asker_that_is_about_to_send_for_all_leaves
    with_pool do |pool|
      stream = pool.with { |db| db.driver.stream }
      tasks = nil
      locked do
        tasks = [Heddle.spawn { pool.exec(UPDATE, 1) }]
        waiting_updates(1)
        sent = stream.statistics[:bytes_sent]
        gate = Thread::Queue.new
        fiber = nil
        tasks << Heddle.spawn { gate.pop && pool.exec(UPDATE, 3) }
        Heddle.spawn { gate.pop && fiber.raise(IOError, "interrupted") }
        2.times { gate << true } # they run while the next one lets them
        sends = Heddle.spawn { answer { (fiber = Fiber.current) && pool.exec(UPDATE, 2) } }
        assert_equal "interrupted", sends.value.message
        wait_until(what: "the other's request") { stream.statistics[:bytes_sent] > sent }
      end
      assert_equal [1, 1], tasks.map(&:value)
    end
  end

  def test_a_statement_that_is_alone_is_stopped
    with_pool do |pool|
      locked do
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { pool.exec(UPDATE, 1) } }
        waiting_updates(0)
      end
      assert_equal 100, pool.query_value("select n from shared where id = 1")
      assert_equal({connections: 1, free: 1, waiting: 0}, pool.stats)
    end
  end

  # The connection comes back to the pool with an answer that is owed to nobody.
  def test_the_last_in_line_leaves_first
    with_pool do |pool|
      tasks = nil
      locked do
        tasks = [Heddle.spawn { pool.exec(UPDATE, 1) },
          Heddle.spawn { answer { Heddle.deadline(0.2) { pool.exec(UPDATE, 2) } } }]
        assert_kind_of Heddle::DeadlineExceeded, tasks.last.value
      end
      assert_equal 1, tasks.first.value
      assert_equal "x", pool.with { |db| db.query_value(echo_text, "x") }
      assert_equal 1, pool.query_value("select n from shared where id = 2")
    end
  end

  def test_all_leave
    with_pool do |pool|
      locked do
        all = answers(1..5) { |id| Heddle.deadline(0.2) { pool.exec(UPDATE, id) } }
        assert_equal [Heddle::DeadlineExceeded], all.map(&:class).uniq
        assert_equal 3, pool.query_value("select 3") # on another connection of the server
      end
    end
  end

  def test_the_connections_timeout_counts_for_each_statement
    with_pool(timeout: 0.5) do |pool|
      locked do
        errors = answers(1..3) { |id| pool.exec(UPDATE, id) }
        assert_equal [Heddle::DeadlineExceeded], errors.map(&:class).uniq
        errors.each { |error| assert_includes error.message, "did not answer within this connection's timeout: of 0.5" }
      end
      assert_equal 1, pool.query_value("select 1")
    end
  end

  def test_a_wait_for_a_place_has_a_limit
    with_pool(multiplex: 1, checkout_timeout: 0.2) do |pool|
      locked do
        first = Heddle.spawn { pool.exec(UPDATE, 1) }
        waiting_updates(1)
        assert_raises(DB::PoolTimeout) { pool.query("select 1") }
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { pool.query("select 1") } }
        first.cancel
      end
    end
  end

  def test_a_connection_that_returns_comes_before_a_shared_one
    with_pool(size: 2, multiplex: 1) do |pool|
      returns = Queue.new
      whole = Heddle.spawn { pool.with { returns.pop } }
      locked do
        first = Heddle.spawn { pool.exec(UPDATE, 1) }
        waiting_updates(1)
        second = Heddle.spawn { pool.query_value("select 1") }
        wait_until(what: "a wait for a place") { pool.stats[:waiting] == 1 }
        returns << nil
        whole.value
        assert_equal 1, Heddle.deadline(20) { second.value }
        third = Heddle.spawn { pool.exec(UPDATE, 1) } # shares the other connection, which then returns
        waiting_updates(2)
        second = Heddle.spawn { pool.query_value("select 2") }
        wait_until(what: "a wait for a place") { pool.stats[:waiting] == 1 }
        third.cancel
        assert_equal 2, Heddle.deadline(20) { second.value }
        first.cancel
      end
    end
  end

  # ---- the end of a connection, and of the pool

  def test_a_connection_that_ends
    with_pool do |pool|
      locked do
        tasks = spawn_all(1..4) { |id| answer { pool.exec(UPDATE, id) } }
        waiting_updates(1)
        end_waiting
        errors = tasks.map(&:value)
        assert_equal [DB::ConnectionLost], errors.map(&:class).uniq
        assert_includes errors.last.message, "the server may or may not have executed the last request"
      end
      assert_equal [1, 2], spawn_all(1..2) { |n| pool.query_value(echo_int, n) }.map(&:value)
      assert_equal [100, 0, 0, 0], @other.query_column("select n from shared where id < 5 order by id")
    end
  end

  # Nobody waits for a connection that another task was to open.
  def test_a_server_that_is_not_there
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    Heddle.run do
      pool = DB::Pool.new("#{URI(url).scheme}://me@127.0.0.1:#{port}/base", size: 2, multiplex: 4, checkout_timeout: 30)
      all = Heddle.deadline(10) { answers(1..9) { |n| pool.query(echo_int, n) } }
      assert_equal [Errno::ECONNREFUSED], all.map(&:class).uniq
      assert_equal({connections: 0, free: 0, waiting: 0}, pool.stats)
    end
  end

  def test_a_pool_that_is_closed
    with_pool(multiplex: 1) do |pool|
      tasks = nil
      locked do
        tasks = spawn_all(1..3) { |id| answer { pool.exec(UPDATE, id) } }
        waiting_updates(1)
        pool.close
        tasks.drop(1).each { |task| assert_kind_of Heddle::PoolClosed, task.value }
      end
      assert_equal 1, tasks.first.value
      assert_raises(Heddle::PoolClosed) { pool.query("select 1") }
      assert_equal({connections: 0, free: 0, waiting: 0}, pool.stats)
    end
  end

  def test_a_connection_that_has_served_its_time_takes_no_more
    with_pool(max_lifetime: 0.3) do |pool|
      over = false
      streams = spawn_all(1..4) { pool.query("select 1") until over }
      first = pool.query_value(own_id)
      wait_until { pool.query_value(own_id) != first }
      over = true
      streams.each(&:value)
    end
  end

  # ---- what is large

  def each_way
    [{}, tls_options].each { |options| with_pool(size: 1, **options) { |pool| yield pool } }
  end

  # Both sockets are full: the client reads while it sends.
  def test_large_values_in_both_directions
    each_way do |pool|
      texts = Array.new(6) { |n| n.to_s * largest }
      assert_equal texts, spawn_all(texts) { |text| pool.query_value(echo_text, text) }.map(&:value)
    end
  end

  def test_an_asker_leaves_in_the_middle_of_a_large_answer
    each_way do |pool|
      [500_000, 40_000_000].each do |size|
        large = repeat(size)
        6.times do |n|
          tasks = [Heddle.spawn { answer { Heddle.deadline(0.01 * n) { pool.query_value(large, "a") } } },
            *spawn_all(1..3) { |id| pool.query_value(echo_int, id) }]
          first = tasks.shift.value
          assert_kind_of Heddle::DeadlineExceeded, first unless first.is_a?(String)
          assert_equal [1, 2, 3], tasks.map(&:value)
        end
        assert_equal size, pool.query_value(large, "a").size
      end
    end
  end

  def test_an_asker_leaves_between_rows
    each_way do |pool|
      rows = "select a.id from shared a, shared b, shared c, shared d where a.id < ?"
      6.times do |n|
        tasks = [Heddle.spawn { answer { Heddle.deadline(0.01 * n) { pool.query(rows, 30).size } } },
          *spawn_all(1..3) { |id| pool.query_value(echo_int, id) }]
        first = tasks.shift.value
        assert_kind_of Heddle::DeadlineExceeded, first unless first == 160_000
        assert_equal [1, 2, 3], tasks.map(&:value)
      end
    end
  end

  # ---- elsewhere

  def test_listeners
    with_pool do |pool|
      events = []
      listener = pool.on_query { |event| events << [event.sql, event.rows, event.error.class] }
      spawn_all(%w[1 2]) { |n| pool.query("select #{n}") }.each(&:value)
      assert_raises(DB::ServerError) { pool.query("select nothing") }
      pool.query(session_setting.first)
      listener.close
      assert_equal [["select 1", 1, NilClass], ["select 2", 1, NilClass], ["select nothing", nil, DB::ServerError],
        [session_setting.first, 0, NilClass]], events
    end
  end

  def test_plain_threads_have_whole_connections
    pool = DB::Pool.new(url, size: 2, multiplex: 4)
    threads = Array.new(6) { |n| Thread.new { pool.query_value(echo_int, n) } }
    assert_equal (0...6).to_a, threads.map(&:value)
  ensure
    pool&.close
  end

  # This one waits only until a socket is readable, so that nobody connects in it.
  def test_another_scheduler
    pool = DB::Pool.new(url, size: 2, multiplex: 4)
    pool.with { |first| pool.with { |second| refute_same first, second } }
    all = []
    Thread.new do
      Fiber.set_scheduler(LeastScheduler.new)
      20.times { |n| Fiber.schedule { 3.times { all << pool.query_value(echo_int, n) } } }
    end.join
    assert_equal (0...20).flat_map { |n| [n] * 3 }, all.sort
    assert_equal({connections: 2, free: 2, waiting: 0}, pool.stats)
  ensure
    pool&.close
  end

  def test_loops_of_several_threads
    pool = DB::Pool.new(url, size: 2, multiplex: 4)
    threads = Array.new(4) do |thread|
      Thread.new do
        Heddle.run { spawn_all(0...30) { |n| pool.query_value(echo_int, thread * 100 + n) }.map(&:value) }
      end
    end
    assert_equal Array.new(4) { |thread| Array.new(30) { |n| thread * 100 + n } }, threads.map(&:value)
  ensure
    pool&.close
  end

  # One thread's opening fails while those of the other wait in front.
  def test_loops_of_several_threads_without_a_server
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    pool = DB::Pool.new("#{URI(url).scheme}://me@127.0.0.1:#{port}/base", size: 1, multiplex: 4, checkout_timeout: 30)
    threads = Array.new(3) { Thread.new { Heddle.run { answers(1..6) { |n| pool.query(echo_int, n) } } } }
    all = threads.flat_map { |thread| thread.join(20)&.value.to_a }
    assert_equal [Errno::ECONNREFUSED] * 18, all.map(&:class)
  end

  def test_a_child_of_fork
    with_pool do |pool|
      tasks = spawn_all(1..4) { |n| pool.query_value(slow_echo, n.to_s) }
      sleep(0.05)
      pid = fork do
        values = Heddle.run { spawn_all(5..8) { |n| pool.query_value(echo_text, n.to_s) }.map(&:value) }
        exit!(values == %w[5 6 7 8])
      rescue Exception # standard:disable Lint/RescueException
        exit!(false)
      end
      Process.wait(pid)
      assert_predicate $?, :success?
      assert_equal %w[1 2 3 4], tasks.map(&:value)
    end
  end

  def test_options
    [0, 101, "many", 1.5].each do |value|
      error = assert_raises(ArgumentError) { DB::Pool.new(url, multiplex: value) }
      assert_includes error.message, "multiplex: must be a whole number from 1 to 100"
    end
    error = assert_raises(ArgumentError) { DB::Pool.new("sqlite::memory:", multiplex: 2) }
    assert_includes error.message, "multiplex: "
    error = assert_raises(ArgumentError) { DB.connect(url, multiplex: 2) }
    assert_includes error.message, "multiplex: is a keyword of Heddle::DB::Pool.new"
  end
end

# frozen_string_literal: true

require "test_helper"
require "heddle/db/mysql"
require "shared/db/multiplexing"
require "support/mariadb_dialect"
require "support/mariadb_server"
require "support/scripted_mysql"

# Statements of several tasks in flight on the connections of a pool to MariaDB.
class MySQLMultiplexTest < Minitest::Test
  include MariaDBHelpers
  include MariaDBDialect
  include DatabaseMultiplexing

  hard_deadline 60

  S = ScriptedMySQL

  # Values of 40 MB come in several packets.
  def setup
    super
    @@packets ||= DB.connect(mariadb.url).then do |db|
      db.query("set global max_allowed_packet = 64 * 1024 * 1024")
      db.close
    end || true
  end

  def url = mariadb.url

  def tls_options = {tls: {ca_file: mariadb.ca_file}}

  def session_id = "connection_id()"

  def echo_int = "select ?"

  def echo_text = "select ?"

  def slow_echo(more = "") = "select ?#{more} from (select sleep(0.2)) as slow"

  def repeat(times) = "select repeat(?, #{times})"

  def waiting_sql
    "select count(*) from information_schema.processlist where command = 'Execute' and info like 'update shared%'"
  end

  def end_waiting
    @watching.query_column(waiting_sql.sub("count(*)", "id")).each { |id| @watching.query("kill #{id}") }
  end

  def lock_sql = "select get_lock('multiplexed', 1)"

  def locks(pool) = pool.query_value("select is_used_lock('multiplexed') is not null")

  def largest = 150_000

  # Each beside statements that share.
  def test_ways_to_ask
    with_pool do |pool|
      tasks = [-> { pool.query_value("select :a + :b", a: 1, b: 2) }, -> { pool.query_value(DB.bind("select ?", 4)) },
        -> { pool.prepare("select ?").query(5).first.first },
        -> { pool.query_row("select ?, cast(? as decimal(5, 2))", Date.new(2026, 1, 2), BigDecimal("1.5")) },
        -> { pool.query_row("select timestamp'2026-01-02 03:04:05', null, 1.5e0") }, -> { pool.exec(UPDATE, 1) },
        -> { pool.query_value(DB.virtual_statement(mysql: "select 6", mariadb: "select 6")) },
        -> { pool.exec("insert into shared values (?, 1), (?, 2) on duplicate key update n = 7", 40, 41) }]
      expected = [3, 4, 5, [Date.new(2026, 1, 2), BigDecimal("1.5")], [Time.utc(2026, 1, 2, 3, 4, 5), nil, 1.5], 1, 6]
      assert_equal [*expected, 2], spawn_all(tasks, &:call).map(&:value)
    end
  end

  def test_keys_and_warnings_are_those_of_the_statement
    with_pool do |pool|
      @other.query("create or replace table keyed (id int primary key auto_increment, n int)")
      results = spawn_all(0...40) { |n| pool.query("insert into keyed (n) values (?)", n) }.map(&:value)
      ids = results.map(&:last_insert_id)
      assert_equal (0...40).zip(ids).to_h, @other.query("select n, id from keyed").to_h { |row| [row[0], row[1]] }
      texts = %w[1 x 2 y 3]
      warnings = spawn_all(texts) { |text| pool.query("select cast(? as int)", text).warnings }.map(&:value)
      assert_equal [0, 1, 0, 1, 0], warnings
      returned = spawn_all(50..52) { |n| pool.query("insert into keyed (n) values (?) returning n", n) }.map(&:value)
      assert_equal([[[50], 1], [[51], 1], [[52], 1]], returned.map { |one| [one.first.to_a, one.affected_rows] })
    end
  end

  # Whether the statement waits until the others on the pool's only connection have ended.
  def whole?(pool, sql, *values)
    waits = false
    locked do
      holder = Heddle.spawn { pool.exec(UPDATE, 1) }
      waiting_updates(1)
      task = Heddle.spawn { answer { pool.query(sql, *values) } }
      # For as long as the holder has the connection, not only until a place on it is found.
      waits = Array.new(20) { sleep(0.001) && pool.stats[:waiting] }.all? { |count| count == 1 }
      [task, holder].each(&:cancel).each(&:wait)
      waiting_updates(0)
    end
    waits
  end

  # Its request is half made while the other one's is.
  def test_a_value_that_asks_the_pool_itself
    with_pool do |pool|
      value = Object.new
      value.define_singleton_method(:to_time) { Time.utc(pool.query_value("select ? + 1", 2025)) }
      all = spawn_all(1..6) { |n| pool.query_row("select ?, ?, ?", n, value, "x" * n) }.map(&:value)
      assert_equal (1..6).map { |n| [n, Time.utc(2026), "x" * n] }, all
    end
  end

  # ---- statements that stay prepared

  def prepared_count = Integer(@watching.query("show global status like 'Prepared_stmt_count'").first.last)

  def test_no_statement_stays_open
    with_pool do |pool|
      before = prepared_count
      4.times do
        answers(1..8) { |id| (id == 3) ? pool.query("select nothing") : pool.query_value("select ? + #{id}", id) }
        answers(1..8) { |id| Heddle.deadline(id.even? ? 0.0005 : 5) { pool.query_value("select ? + #{id}", id) } }
      end
      wait_until { prepared_count <= before }
    end
  end

  # At its limit the server refuses the prepare, and the execution behind it is one of the statement before.
  def test_a_server_that_has_no_room_for_statements_runs_no_other
    with_pool(statement_cache: :always) do |pool|
      kept = "update shared set n = n + 1000 where id < ?"
      pool.with { |db| db.exec(kept, 2) } # stays prepared
      limit = @other.query_value("select @@global.max_prepared_stmt_count")
      @other.query("set global max_prepared_stmt_count = 0")
      errors = answers(1..6) { |id| pool.exec(UPDATE, 20 + id) }
      assert_equal [DB::StatementLimit], errors.map(&:class).uniq
      assert_equal [3] * 4, spawn_all(1..4) { pool.query_value("select 3") }.map(&:value) # as text
      @other.query("set global max_prepared_stmt_count = #{limit}")
      assert_equal 1, pool.exec(UPDATE, 1)
      assert_equal [1001, 0], @other.query_column("select n from shared order by id limit 2")
      pool.with { |db| assert_equal 1, db.exec(kept, 2) }
      assert_equal [1] * 6, spawn_all(1..6) { |id| pool.exec(UPDATE, id) }.map(&:value)
      assert_equal [2002, 1], @other.query_column("select n from shared order by id limit 2")
    ensure
      @other.query("set global max_prepared_stmt_count = #{limit}") if limit
    end
  end

  def test_kept_statements_and_shared_connections
    with_pool(size: 2) do |pool|
      tasks = spawn_all(1..40) do |n|
        next pool.query_value("select ? * 2", n) unless (n % 4).zero?

        pool.transaction { |db| 2.times.sum { db.query_value("select ? + #{n % 3}", n) - n % 3 } }
      end
      assert_equal((1..40).map { |n| n * 2 }, tasks.map(&:value))
    end
  end

  # ---- sessions

  def test_what_looks_back_has_a_connection_of_its_own
    with_pool do |pool|
      ["select last_insert_id()", "select FOUND_ROWS()", "select row_count()", "select @@warning_count",
        "select @@identity", "insert into shared values (last_insert_id(7), 1)", "select lastval(s)",
        "select previous value for s", "select @a", "select release_lock(get_lock('x', 0))", "select /*! 1 */ 1",
        "show warnings", ["select ?", "a" * 1_100_000]].each { |sql| assert whole?(pool, *sql), sql }
      ["select 1", "select 'last_insert_ids', 'a@b.c', previous from shared", ["select ?", "a" * 10_000],
        ["insert into shared values (?, 1)", 50]].each { |sql| refute whole?(pool, *sql), sql }
    end
  end

  # The server tells of the change with the answer.
  def test_a_session_that_a_function_has_changed_is_not_shared
    with_pool do |pool|
      @other.query("create or replace function mux_leaves() returns int " \
        "begin set session div_precision_increment = 9; return 1; end")
      leaves = Heddle.spawn { pool.query_value("select mux_leaves()") }
      slow = Heddle.spawn { pool.query_value(slow_echo, "x") }
      assert_equal 1, leaves.value
      assert_equal BigDecimal("0.3333"), pool.query_value("select 1 / 3")
      assert_equal "x", slow.value
    end
  end

  def test_without_autocommit_nothing_is_shared
    with_pool(init: ["set autocommit = 0"], size: 2) do |pool|
      ids = spawn_all(1..6) { pool.query_value("select connection_id() from shared where id = 1") }.map(&:value)
      assert_equal 6, ids.uniq.size # a pool closes a connection in a transaction
    end
  end

  # ---- servers

  def test_a_server_that_prepares_first
    play = proc do |peer|
      peer.welcome
      peer.read
    end
    S.play(play) do |server|
      Heddle.run do
        pool = DB::Pool.new(server.url, multiplex: 4, timeout: 5)
        error = assert_raises(ArgumentError) { pool.query("select ?", 1) }
        assert_match(/\Amultiplex: is not for MySQL at 127\.0\.0\.1:\d+ \(8\.0\.36\): it runs a new/, error.message)
        assert_equal({connections: 0, free: 0, waiting: 0}, pool.stats)
        pool.close
      end
    end
  end

  MARIADB = {version: "5.5.5-10.11.6-MariaDB", capabilities: S::CAPABILITIES & ~1 & ~(1 << 24)}.freeze
  END_OF_PART = "\xfe\0\0\2\0".b
  PREPARED = ["\0".b + [1, 1, 0, 0, 0].pack("VvvCv"), S.column("c", 8), END_OF_PART].freeze
  ROW = ["\1", S.column("c", 8), END_OF_PART, "\0\0".b + [1].pack("q<"), END_OF_PART].freeze
  ANSWER = (S.packets(1, *PREPARED) + S.packets(1, *ROW)).freeze
  private_constant :MARIADB, :END_OF_PART, :PREPARED, :ROW, :ANSWER

  # Each of the tasks asks the scripted server for 1.
  def asked_of(bytes, ends: false)
    values = nil
    play = proc do |peer|
      peer.welcome(**MARIADB)
      peer.request
      peer.raw(bytes)
      peer.socket.close_write if ends
      loop { peer.read } # the rest of the requests
    end
    S.play(play) do |server|
      Heddle.run do
        pool = DB::Pool.new(server.url, size: 1, multiplex: 4, timeout: 5, kill_queries: false)
        values = answers(1..3) { pool.query_value("select 1") }
      ensure
        pool&.close
      end
    end
    values
  end

  def test_answers_that_are_cut
    assert_equal [1, 1, 1], asked_of(ANSWER * 3)
    whole = ANSWER * 3
    (0...whole.bytesize).step(7) do |length|
      values = asked_of(whole.byteslice(0, length), ends: true)
      done = length / ANSWER.bytesize
      assert_equal [1] * done, values.first(done)
      assert_equal [DB::ConnectionLost], values.drop(done).map(&:class).uniq
    end
  end

  # With one reply too many the next task would get what is not its own.
  def test_answers_that_are_more
    row, prepared = S.packets(1, *ROW), S.packets(1, *PREPARED)
    [row + ANSWER * 3, ANSWER + row + ANSWER * 2, ANSWER + prepared + ANSWER,
      S.packets(1, *PREPARED, *ROW) + ANSWER * 2].each do |bytes|
      values = asked_of(bytes, ends: true)
      assert_empty values.map { |value| value.is_a?(Integer) ? value : value.class } -
        [1, DB::ProtocolError, DB::ConnectionLost]
      assert_operator values.count(1), :<=, 2
    end
  end

  # The first asker leaves when that many bytes of its answer have come.
  def left_at(length, bytes)
    sent, left = Thread::Queue.new, Thread::Queue.new
    play = proc do |peer|
      peer.welcome(**MARIADB)
      peer.request
      peer.raw(bytes.byteslice(0, length))
      sent << true
      left.pop
      peer.raw(bytes.byteslice(length..) + ANSWER)
      loop { peer.read }
    ensure
      sent << false # where the client has closed the connection
    end
    S.play(play) do |server|
      Heddle.run do
        pool = DB::Pool.new(server.url, size: 1, multiplex: 4, timeout: 5, kill_queries: false)
        first, second = spawn_all(1..2) { pool.query_value("select 1") }
        sent.pop
        sleep(0.001)
        first.cancel.wait
        left << true
        assert_equal 1, second.value, "left at byte #{length}"
        assert_equal({connections: 1, free: 1, waiting: 0}, pool.stats)
      ensure
        pool&.close
      end
    end
  end

  def test_an_asker_leaves_at_each_byte
    text = S.column("c", 0xfd)
    answer = S.packets(1, *PREPARED) +
      S.packets(1, "\1", text, END_OF_PART, "\0\0\1a".b, "\0\0\1b".b, END_OF_PART)
    answer.bytesize.times { |length| left_at(length, answer) }
    refused = S.packets(1, "\xff".b + [1054].pack("v") + "#42S22no such column".b) * 2
    refused.bytesize.times { |length| left_at(length, refused) }
  end

  def test_an_asker_leaves_within_a_large_row
    [200_000, 0xffffff, 0x1000005].each do |size|
      value = "\0\0\xfd".b + [size].pack("V")[0, 3] + "x".b * size
      value = "\0\0\xfe".b + [size].pack("Q<") + "x".b * size if size > 0xffffff
      parts = [value.byteslice(0, 0xffffff), *(value.byteslice(0xffffff..) if value.bytesize >= 0xffffff)]
      head = S.packets(1, *PREPARED) + S.packets(1, "\1", S.column("c", 0xfd), END_OF_PART)
      answer = head + S.packets(4, *parts, END_OF_PART)
      border = head.bytesize + 4 + parts.first.bytesize
      within = [0, 3, 4, 5, 100_000].map { |count| head.bytesize + count }
      within.push(border - 1, border, border + 2, border + 4, answer.bytesize - 3)
      within.each { |length| left_at(length, answer) }
    end
  end

  # Only a row is skipped without a look at what it is.
  def test_an_asker_leaves_within_a_large_definition
    head = S.packets(1, *PREPARED)
    answer = head + S.packets(1, "\1", "x" * 70_000, END_OF_PART, END_OF_PART)
    [5, 9, 10, 30_000].each { |within| left_at(head.bytesize + within, answer) }
  end

  def test_a_server_that_ends_with_sixteen_in_flight
    with_pool(multiplex: 16) do |pool|
      locked(3) do
        tasks = spawn_all(1..16) { |id| answer { pool.exec(UPDATE, id) } }
        waiting_updates(1) # the first two are answered
        end_waiting
        assert_equal [1, 1], tasks.first(2).map(&:value)
        errors = tasks.drop(2).map(&:value)
        assert_equal [DB::ConnectionLost], errors.map(&:class).uniq
      end
      assert_equal [1, 1, 100, 0, 0], @other.query_column("select n from shared where id < 6 order by id")
    end
  end

  # ---- interruptions

  # At every moment of an answer: whoever reads next skips what is left of it.
  def test_askers_that_leave_at_random
    seed = Integer(ENV.fetch("HEDDLE_STRESS_SEED") { rand(100_000) })
    random = Random.new(seed)
    with_pool(size: 2, multiplex: 4) do |pool|
      wide = "select repeat(?, 70000), a.id from shared a, shared b where a.id <= 4 and b.id <= 4"
      tasks = spawn_all(0...200) do |n|
        sleep(random.rand * 0.3)
        Heddle.deadline((random.rand < 0.5) ? random.rand * 0.02 : 30) do
          case n % 4
          when 0 then pool.query_value("select ?", n) == n
          when 1 then pool.query("select ?, id from shared where id <= 10", n).all? { |row| row[0] == n }
          when 2 then pool.query(wide, n).all? { |row| row[0] == n.to_s * 70000 }
          else pool.query("select nothing, ?", n)
          end
        end
      rescue Heddle::DeadlineExceeded, DB::PoolTimeout
        :late
      rescue DB::ServerError => error
        n % 4 == 3 && error.code == 1054
      end
      values = tasks.map(&:value)
      assert_empty values - [true, :late], "seed #{seed}"
      assert_includes values, true
      assert_equal "x", pool.query_value("select ?", "x")
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/both_modes"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"

# LISTEN, NOTIFY and notices, on a real PostgreSQL.
module PostgreSQLListenSuite
  include StreamHelpers
  include PostgreSQLHelpers

  # Two connections: one listens, one sends.
  def with_two
    server = postgresql
    in_host do
      one = Heddle::DB.connect(server.url, timeout: 20)
      two = Heddle::DB.connect(server.url, timeout: 20)
      yield one, two
    ensure
      one&.close
      two&.close
    end
  end

  # What runs beside the test: a task, or a thread.
  def beside(&block)
    Fiber.scheduler ? Heddle.spawn(&block) : Thread.new(&block)
  end

  def test_a_notification_that_comes_while_somebody_waits
    with_two do |db, other|
      db.listen("ch")
      sender = beside { other.notify("ch", "hällo\n") }
      found = db.wait_for_notification(10)
      assert_equal ["ch", "hällo\n", other.driver.process_id], found.to_a
      assert_equal [Encoding::UTF_8] * 2, [found.channel, found.payload].map(&:encoding)
      sender.value
      assert_nil db.wait_for_notification(0)
      assert_nil db.wait_for_notification(0.01)
      assert_equal 7, db.query_value("select 7")
    end
  end

  # Notifications arrive together with answers of queries, and between them.
  def test_notifications_that_arrived_before_the_wait
    with_two do |db, other|
      db.listen("ch", "Other \"one\"")
      other.notify("ch", "1")
      db.query("select 1")
      other.notify("Other \"one\"", "2")
      other.notify("ch", "3")
      db.query("select 1")
      other.notify("ch")
      found = Array.new(4) { db.wait_for_notification(10) }
      assert_equal ["1", "2", "3", ""], found.map(&:payload)
      assert_equal "Other \"one\"", found[1].channel
      assert_nil db.wait_for_notification(0)
    end
  end

  # The wait sleeps in the system: it does not ask again and again.
  def test_a_wait_does_not_poll
    with_two do |db, other|
      db.listen("ch")
      db.query("select 1")
      before = db.driver.stream.statistics
      sender = beside { sleep(0.2) && other.notify("ch", "x") }
      assert_equal "x", db.wait_for_notification(10).payload
      sender.value
      after = db.driver.stream.statistics
      assert_operator after[:waits] - before[:waits], :<=, 2
      assert_operator after[:receives] - before[:receives], :<=, 4
    end
  end

  def test_a_block_gets_notifications_until_it_is_left
    with_two do |db, other|
      payloads = []
      # What is sent before somebody listens is lost.
      sender = beside { other.notify("ch", "n") until payloads.size == 5 }
      db.listen("ch") do |notification|
        payloads << notification.payload
        assert_equal 7, db.query_value("select 7")
        break if payloads.size == 5
      end
      sender.value
      assert_equal ["n"] * 5, payloads
      while db.wait_for_notification(0)
      end
      other.notify("ch", "late")
      db.query("select 1")
      assert_nil db.wait_for_notification(0) # it has stopped listening
    end
  end

  def test_unlisten
    with_two do |db, other|
      db.listen("one", "two", "three").unlisten("one")
      %w[one two three].each { |channel| other.notify(channel, channel) }
      assert_equal %w[two three], Array.new(2) { db.wait_for_notification(10).payload }
      db.unlisten
      other.notify("two")
      db.ping
      assert_nil db.wait_for_notification(0)
      assert_raises(ArgumentError) { db.listen }
      assert_raises(ArgumentError) { db.listen("") }
      assert_raises(ArgumentError) { db.notify("a\0b") }
      assert_raises(Heddle::DB::ServerError) { db.notify("ch", "x" * 8000) }
    end
  end

  def test_transactions
    with_two do |db, other|
      db.listen("ch")
      db.transaction do
        other.notify("ch", "x")
        db.query("select 1")
        assert_raises(Heddle::DB::TransactionError) { db.wait_for_notification(1) }
      end
      assert_equal "x", db.wait_for_notification(10).payload
      catch(:undo) { other.transaction { other.notify("ch", "never") && throw(:undo) } }
      other.transaction { other.notify("ch", "committed") }
      assert_equal "committed", db.wait_for_notification(10).payload
    end
  end

  def test_deadlines_leave_the_connection_open
    with_two do |db, other|
      db.listen("ch")
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { db.wait_for_notification } }
      # Long enough for LISTEN: a deadline within that exchange closes the connection if the cancel is late, too.
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.5) { db.listen("ch2") { nil } } }
      refute_predicate db, :closed?
      other.notify("ch", "x")
      assert_equal "x", db.wait_for_notification(10).payload
    end
  end

  def test_a_waiting_notification_is_no_lost_connection
    with_two do |db, other|
      db.listen("ch")
      other.transaction { 3.times { |i| other.notify("ch", i.to_s) } } # which come together
      assert IO.select([db.driver.stream.to_io], nil, nil, 10)
      assert_predicate db, :healthy?
      assert_equal %w[0 1 2], Array.new(3) { db.wait_for_notification(10).payload }
      other.query("select pg_terminate_backend(?)", db.driver.process_id)
      wait_until { !db.healthy? }
    end
  end

  # The time of a wait, or a deadline, may end in the middle of a message.
  def test_a_notification_that_comes_in_two_parts
    message = ScriptedPostgreSQL.message("A", [1].pack("N") + "ch\0text\0")
    go = Thread::Queue.new
    play = lambda do |peer|
      peer.welcome
      [message[0, 7], message[7..] + message[0, 2], message[2..]].each { |part| go.pop && peer.raw(part) }
      peer.read
    end
    ScriptedPostgreSQL.play(play) do |server|
      in_host do
        db = Heddle::DB.connect(server.url)
        go << true
        wait_until(what: "a part of a message") { db.driver.stream.buffered == 7 || db.wait_for_notification(0.001) }
        assert_nil db.wait_for_notification(0.02)
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { db.wait_for_notification } }
        go << true
        assert_equal "text", db.wait_for_notification(10).payload
        go << true
        assert_equal "text", db.wait_for_notification(10).payload
      ensure
        db&.close
      end
    end
  end

  # While a server sends without end, deadlines end the call, and other tasks run.
  def test_messages_without_end
    floods = {notifications: ScriptedPostgreSQL.message("A", [1].pack("N") + "ch\0text\0"),
              settings: ScriptedPostgreSQL.setting("name", "value"),
              closes: ScriptedPostgreSQL.message("3")}
    floods.each_value do |message|
      bytes = message * ((1 << 20) / message.bytesize)
      ScriptedPostgreSQL.play(->(peer) { peer.welcome && loop { peer.raw(bytes) } }) do |server|
        in_host do
          flooded = lambda do
            db = Heddle::DB.connect(server.url, kill_queries: false)
            loop { db.wait_for_notification }
          ensure
            db&.close
          end
          assert_within(5) do # without an end of its own it would last for ever
            assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3, &flooded) }
          end
          next unless Fiber.scheduler

          assert_within(5) do
            reader = Heddle.spawn(&flooded)
            4.times { sleep(0.001) }
            assert_equal :cancelled, reader.cancel.wait.status
          end
        end
      end
    end
  end

  def test_settings_without_end
    play = lambda do |peer|
      peer.welcome && peer.read
      count = 0
      loop { peer.raw(Array.new(100) { ScriptedPostgreSQL.setting("name#{count += 1}", "value") }.join) }
    end
    ScriptedPostgreSQL.play(play) do |server|
      in_host do
        db = Heddle::DB.connect(server.url, timeout: 20)
        error = assert_raises(Heddle::DB::ProtocolError) { db.query("select 1") }
        assert_match(/more settings/, error.message)
      ensure
        db&.close
      end
    end
  end

  def test_the_end_of_the_connection_ends_the_wait
    with_two do |db, other|
      db.listen("ch")
      killer = beside { other.query("select pg_terminate_backend(?)", db.driver.process_id) }
      error = assert_raises(Heddle::DB::ConnectionLost) { db.wait_for_notification(10) }
      assert_match(/terminating connection/, error.message)
      assert_predicate db, :closed?
      killer.value
    end
  end

  def test_only_the_newest_notifications_are_kept
    with_two do |db, other|
      db.listen("ch")
      other.query("select pg_notify('ch', n::text) from generate_series(1, 10500) as n")
      db.ping
      seen = []
      while (found = db.wait_for_notification(0.5))
        seen << found.payload.to_i
      end
      assert_equal 10_500, seen.last
      assert_equal seen.sort, seen
      assert_operator seen.size, :>=, 10_000
    end
  end

  def test_a_pool_unlistens_before_the_next_user
    server = postgresql
    in_host do
      pool = Heddle::DB::Pool.new(server.url, size: 1, timeout: 20)
      other = Heddle::DB.connect(server.url, timeout: 20)
      process = nil
      pool.with do |db|
        db.listen("ch")
        process = db.driver.process_id
        other.notify("ch", "for the one before")
        db.ping
      end
      pool.with do |db|
        assert_equal process, db.driver.process_id
        other.notify("ch", "x")
        db.ping
        assert_nil db.wait_for_notification(0)
      end
    ensure
      pool&.close
      other&.close
    end
  end

  # ---- notices

  RAISE = "do $$ begin raise warning 'a %', E'\\x01' using detail = 'd', hint = 'h'; raise notice 'b'; end $$"

  def test_notices
    with_two do |db, _|
      db.exec(RAISE) # dropped
      seen = []
      assert_same db, db.on_notice { |notice| seen << notice }
      db.exec(RAISE)
      assert_equal [["WARNING", "01000", "a \\x01", "d", "h"], ["NOTICE", "00000", "b", nil, nil]],
        seen.map { |notice| notice.to_a.first(5) }
      assert_match(/inline_code_block/, seen[0].context)
      db.exec("drop table if exists missing_table")
      assert_match(/missing_table/, seen.last.message)
      assert_raises(Heddle::DB::ServerError) { db.exec("do $$ begin raise notice 'c'; raise exception 'x'; end $$") }
      assert_equal "c", seen.last.message
      db.on_notice
      db.exec(RAISE)
      assert_equal 4, seen.size
    end
  end

  def test_a_handler_may_use_the_connection_and_raise
    with_two do |db, _|
      seen = nil
      db.on_notice { |notice| seen = db.query_value("select ?::text", notice.message) }
      db.exec("do $$ begin raise notice 'b'; end $$")
      assert_equal "b", seen
      db.on_notice { raise KeyError, "mine" }
      assert_raises(KeyError) { db.exec("do $$ begin raise notice 'b'; end $$") }
      assert_equal 7, db.query_value("select 7")
    end
  end

  # The server sends a notice with its answer to COMMIT: the transaction has ended, whatever the handler does.
  def test_a_handler_that_raises_at_the_end_of_a_transaction
    with_two do |db, _|
      db.exec("create temporary table noisy (id int)")
      db.exec("create function pg_temp.noise() returns trigger language plpgsql as " \
        "$$ begin raise notice 'now'; return null; end $$")
      db.exec("create constraint trigger noise after insert on noisy deferrable initially deferred " \
        "for each row execute function pg_temp.noise()")
      db.on_notice { raise KeyError, "mine" }
      db.start_transaction
      db.exec("insert into noisy values (1)")
      assert_raises(KeyError) { db.commit }
      assert_equal [0, false, false], [db.transaction_depth, db.in_transaction?, db.needs_rollback?]
      assert_raises(KeyError) { db.transaction { db.exec("insert into noisy values (2)") } }
      assert_equal 2, db.query_value("select count(*) from noisy")
      # Not even an error that says so makes it run twice.
      db.on_notice { raise Heddle::DB::SerializationFailure, "of another connection" }
      assert_raises(Heddle::DB::SerializationFailure) do
        db.transaction(retry: 3) { db.exec("insert into noisy values (3)") }
      end
      assert_equal 3, db.query_value("select count(*) from noisy")
    end
  end
end

BothModes.define("PostgreSQLListen", PostgreSQLListenSuite)

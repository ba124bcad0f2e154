# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"

runs_on also: %i[newer_servers]

# An interrupted query is stopped on the server, by a connection of its own, and hits no other query.
class PostgreSQLCancelTest < Minitest::Test
  include StreamHelpers
  include OwnPostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  Script = ScriptedPostgreSQL

  def setup
    @watcher = DB.connect(postgresql.url, timeout: 20)
  end

  def teardown
    @watcher&.close
  end

  def asleep
    @watcher.query_value("select count(*) from pg_stat_activity where wait_event = 'PgSleep' " \
      "and application_name = 'cancelled'")
  end

  def interrupted(url = postgresql.url, **options)
    db = DB.connect(url, timeout: 20, application_name: "cancelled", **options)
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { db.query("select pg_sleep(30)") } }
    db
  end

  def test_a_cancel_over_tcp_tls_and_a_unix_socket
    tls = {sslmode: "verify-full", sslrootcert: postgresql.ca_file}
    [{}, tls, {socket: postgresql.socket_dir}, {host: "localhost"}].each do |way|
      %i[thread fiber].each do |mode|
        in_mode(mode) { assert_equal 1, interrupted(**way).query_value("select 1"), way }
        assert_equal 0, asleep, way
      end
    end
  end

  # A server notices that a client went away only when it has something to say.
  def test_without_a_cancel_the_server_goes_on
    db = interrupted(kill_queries: false)
    assert_predicate db, :closed?
    assert_equal 1, asleep
    @watcher.query("select pg_cancel_backend(?)", db.driver.process_id)
    wait_until(what: "the end of the query") { asleep.zero? }
  end

  def test_thread_raise_and_a_cancelled_task
    db = DB.connect(postgresql.url, timeout: 20, application_name: "cancelled")
    thread = Thread.new do
      db.query("select pg_sleep(30)")
    rescue IndexError
      :interrupted
    end
    wait_until(what: "the sleep") { asleep == 1 }
    thread.raise(IndexError)
    assert_equal :interrupted, thread.value
    wait_until(what: "the end of the query") { asleep.zero? }
    Heddle.run do
      other = DB.connect(postgresql.url, timeout: 20, application_name: "cancelled")
      task = Heddle.spawn { other.query("select pg_sleep(30)") }
      wait_until(what: "the sleep") { asleep == 1 }
      task.cancel
      wait_until(what: "the end of the query") { asleep.zero? }
    end
  end

  # The next user of the pool gets the same connection, and nothing interrupts his query.
  def test_no_cancel_hits_the_next_user_of_a_pool
    pool = DB::Pool.new(postgresql.url, size: 1, timeout: 20, application_name: "cancelled")
    session = pool.query_value("select pg_backend_pid()")
    10.times do |n|
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { pool.query("select pg_sleep(30)") } }
      assert_equal n, pool.query_value("select ?::int from pg_sleep(0.02)", n)
    end
    assert_equal session, pool.query_value("select pg_backend_pid()")
    wait_until(what: "the end of the queries") { asleep.zero? }
  ensure
    pool&.close
  end

  # ---- scripted servers

  # Connections of the script, each with what the client said first.
  def scripted(answer: nil, welcome: Script.welcome, tls: false)
    cancels = Thread::Queue.new
    play = proc do |peer|
      code, rest = peer.start
      if tls && code == Script::TLS_REQUEST
        peer.raw("S")
        peer.start_tls(Certificates.context)
        code, rest = peer.start
      end
      if code == Script::CANCEL_REQUEST
        cancels << [rest, peer.socket.is_a?(OpenSSL::SSL::SSLSocket)]
        peer.raw(answer) if answer
        peer.socket.read if answer == ""
      else
        peer.raw(welcome)
        peer.request
        peer.socket.read
      end
    end
    Script.play(play) { |server| yield server, cancels }
  end

  def interrupt(server, **options)
    db = DB.connect(server.url, timeout: 20, **options)
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.query("select 1") } }
    assert_predicate db, :closed?
    db
  end

  KEY = [7].pack("N") + "abcd"

  def test_the_cancel_uses_tls_if_the_connection_does
    scripted { |server, cancels| interrupt(server) && assert_equal([KEY, false], cancels.pop) }
    scripted(tls: true) do |server, cancels|
      interrupt(server, sslmode: "verify-full", sslrootcert: Certificates.authority_file)
      assert_equal [KEY, true], cancels.pop
    end
  end

  # A server that takes TLS for the log-in, and not for the cancel, must not get the key in the clear.
  def test_no_key_in_the_clear_after_tls
    said = Thread::Queue.new
    count = 0
    play = proc do |peer|
      peer.start
      if (count += 1) == 1
        peer.raw("S")
        peer.start_tls(Certificates.context)
        peer.welcome
        peer.request
      else
        peer.raw("N")
        said << peer.socket.read
      end
      peer.socket.read
    end
    Script.play(play) do |server|
      interrupt(server, sslmode: "require")
      assert_equal "", said.pop
    end
  end

  # The types of a result are looked up behind it: timeout: is for both together.
  def test_one_limit_for_a_query_and_the_look_up_of_its_types
    unknown = "c\0".b + [0, 0, 99_999, -1, -1, 0].pack("NnNnNn")
    answer = Script.message("1") + Script.message("2") + Script.message("T", [1].pack("n") + unknown) +
      Script.message("D", [1, 1].pack("nN") + "x") + Script.message("C", "SELECT 1\0") + Script.ready
    asked = 0
    play = lambda do |peer|
      peer.welcome
      2.times do
        peer.request
        asked += 1
        sleep(0.7)
        peer.raw(answer)
      end
    end
    Script.play(play) do |server|
      db = DB.connect(server.url, timeout: 1, connect_timeout: 20, kill_queries: false)
      assert_raises(Heddle::DeadlineExceeded) { db.query("select c") }
      assert_equal 2, asked
    end
  end

  def test_a_server_that_sends_no_cancel_key
    without_key = Script.message("R", [0].pack("N")) + Script.ready
    scripted(welcome: without_key) do |server, cancels|
      interrupt(server)
      assert_equal [1, 0], [server.accepted, cancels.size]
    end
    # It neither answers nor closes.
    scripted(answer: "") do |server, cancels|
      took = monotonic
      interrupt(server)
      took = monotonic - took
      assert_equal KEY, cancels.pop.first
      assert_operator took, :<, stretched(4), "the cancel has one second"
    end
    scripted(answer: "junk" * 1000) { |server, cancels| interrupt(server) && cancels.pop }
  end

  # Nothing runs on the server: there is nothing to stop.
  def test_no_cancel_before_or_after_a_query
    scripted do |server, cancels|
      db = DB.connect(server.url, timeout: 20)
      assert_raises(TypeError) { db.query("select ?", Object.new) }
      db.close
      db.close
      assert_equal [1, 0], [server.accepted, cancels.size]
    end
  end

  # A server of the same name on another address would not know the key.
  def test_the_cancel_goes_to_the_address_that_gave_the_key
    scripted do |server, cancels|
      db = DB.connect("postgresql://me@localhost:#{server.port}/base", timeout: 20)
      home = db.driver.instance_variable_get(:@login).home
      assert_equal db.driver.stream.to_io.remote_address.ip_address, home.address
      assert_nil home.password
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.query("select 1") } }
      assert_equal KEY, cancels.pop.first
    end
  end
end

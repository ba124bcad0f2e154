# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/servers"
require "support/shaping_proxy"
require "timeout"

# Mysql2::Client with heddle/mysql2, against a real server behind a proxy that falls silent or drips.
class Mysql2OffloadTest < Minitest::Test
  include LoopHelpers
  include ShapingProxies

  hard_deadline 120 # a cold machine creates a database first

  ROWS = "select seq, repeat('x', 50) as text from seq_1_to_100"

  # What the server's side does once the client is logged in.
  FAULTS = {
    "silence" => {stall_at: 0},
    "silence_in_a_row" => {stall_at: 1000},
    "a_byte_every_half_second" => {drip: 0.5}
  }.freeze

  def setup
    require "heddle/mysql2"
    @server = Servers.mariadb
    @proxy = shaping_proxy(@server)
  end

  module Behaviour
    def test_faults_in_a_query
      in_host do |start|
        FAULTS.map do |_, shape|
          proxy = shaping_proxy(@server)
          start.call { assert_gives_up(shape, proxy: proxy) { |client| client.query(ROWS) } }
        end.each(&:value)
      end
    end

    FAULTS.each do |name, shape|
      # mysql2 reads the rows of a statement while it holds the GVL: one after the other.
      define_method(:"test_#{name}_in_a_prepared_statement") do
        in_host do
          statement = nil
          assert_gives_up(shape, before: ->(client) { statement = client.prepare(ROWS) }) { statement.execute.to_a }
        end
      end
    end

    def test_silence_during_each_kind_of_call
      in_host do
        [:ping, [:prepare, "select 1"], [:select_db, "heddle"],
          [:set_server_option, Mysql2::Client::OPTION_MULTI_STATEMENTS_ON]].each do |call|
          assert_gives_up({stall_at: 0}, seconds: 0.2) { |client| client.public_send(*call) }
        end
      end
    end

    def test_silence_before_the_login
      in_host do
        @proxy.shape(stall_at: 0)
        assert_within(1.5, at_least: 0.95) do
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(1) { connect } }
        end
        @proxy.shape(stall_at: 20) # in the greeting
        assert_within(1.5, at_least: 0.95) do
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(1) { connect } }
        end
      end
    end

    def test_in_time
      in_host do
        Heddle.deadline(30) do
          client = connect
          assert_equal [{"one" => 1}], client.query("select 1 as one").to_a
          assert_equal 100, client.query(ROWS).count
          assert_equal [[7]], client.prepare("select ? + 3").execute(4, as: :array).to_a
          assert client.ping
          assert_match(/doesn't exist/, assert_raises(Mysql2::Error) { client.query("select * from nowhere") }.message)
          client.query("select 1", async: true)
          assert_equal 1, client.async_result.first.values.first
          assert client.set_server_option(Mysql2::Client::OPTION_MULTI_STATEMENTS_ON)
          client.query("select 1; select 2")
          assert client.next_result
          assert_equal 2, client.store_result.first.values.first
          client.close
          assert_raises(Mysql2::Error) { client.query("select 1") }
        end
      end
    end

    # Nothing is left waiting, and nothing stays open.
    def test_no_descriptor_and_no_thread_is_left
      in_host do
        assert_gives_up({stall_at: 1000}, seconds: 0.1) { |client| client.query(ROWS) }
        before = descriptor_count
        3.times { assert_gives_up({stall_at: 1000}, seconds: 0.1) { |client| client.query(ROWS) } }
        assert_operator descriptor_count, :<=, before
      end
      wait_until(what: "the end of the threads") { Thread.list.none? { |thread| thread.name == "heddle mysql2" } }
    end
  end

  class InARun < Mysql2OffloadTest
    include Behaviour

    mode :fiber

    def test_other_tasks_keep_running
      @proxy.shape(drip: 0.002)
      gap = nil
      3.times { break if (gap = gap_beside_a_query) < 0.1 } # the machine may be busy
      assert_operator gap, :<, stretched(0.1)
    end

    def test_a_cancel_shuts_the_connection
      Heddle.run do
        client = connect
        @proxy.shape(stall_at: 1000)
        task = Heddle.spawn { client.query(ROWS) }
        wait_until { @proxy.stats["reply_bytes"] >= 1000 }
        task.cancel
        assert task.wait(5)
        assert_equal [:cancelled, true], [task.status, client.closed?]
        assert_raises(Heddle::MySQL2::Unusable) { client.query("select 1") }
      end
    end

    def test_a_timeout_shuts_the_connection
      Heddle.run do
        client = connect
        @proxy.shape(stall_at: 1000)
        assert_within(1.5) { assert_raises(Timeout::Error) { Timeout.timeout(0.2) { client.query(ROWS) } } }
        assert_predicate client, :closed?
      end
    end

    # As many as Heddle.offload has threads, and the one that could release the lock.
    def test_waiters_for_a_lock_leave_a_thread_for_its_holder
      count = Heddle::Offload.threads
      Heddle.run do
        holder, *others = Array.new(count + 1) { connect }
        assert_equal 1, holder.query("select get_lock('heddle', 0) as had").first["had"]
        tasks = others.map do |client|
          Heddle.spawn do
            client.query("select get_lock('heddle', 8) as had").first["had"].tap do
              client.query("select release_lock('heddle')")
            end
          end
        end
        waiting = "select count(*) as number from information_schema.processlist where state = 'User lock'"
        wait_until { holder.query(waiting).first["number"] == count }
        holder.query("select release_lock('heddle')")
        assert_equal [1] * count, tasks.map(&:value)
        [holder, *others].each(&:close)
      end
    end

    def test_twenty_queries_at_once
      Heddle.run do
        tasks = Array.new(20) { |index|
          Heddle.spawn { connect.query("select #{index} as number, sleep(0.1)").first["number"] }
        }
        assert_within(1.5, remeasure: 0) { assert_equal [*0...20], tasks.map(&:value) }
      end
    end

    private

    def gap_beside_a_query
      Heddle.run do
        gap = 0
        beat = Heddle.spawn do
          loop do
            start = monotonic
            sleep(0.005)
            gap = [gap, monotonic - start].max
          end
        end
        assert_equal 1, connect.query("select 1 as one").first["one"]
        beat.cancel
        gap
      end
    end

    def in_host = Heddle.run { yield Heddle.method(:spawn) }
  end

  class InAThread < Mysql2OffloadTest
    include Behaviour

    mode :thread

    # Without a deadline nothing changes: no other thread is involved.
    def test_outside_of_deadlines_mysql2_is_unchanged
      wait_until(what: "the end of other tests' threads") do
        Thread.list.none? { |thread| thread.name == "heddle mysql2" }
      end
      client = connect
      assert_equal 1, client.query("select 1 as one").first["one"]
      assert(Thread.list.none? { |thread| thread.name == "heddle mysql2" })
    end

    private

    def in_host = yield(method(:in_background))
  end

  private

  def connect(proxy = @proxy)
    Mysql2::Client.new(host: proxy.host, port: proxy.port, username: @server.username, password: @server.password,
      database: @server.database)
  end

  def assert_gives_up(shape, seconds: 1, before: nil, proxy: @proxy)
    client = nil
    assert_within(seconds + 0.5, at_least: seconds * 0.95) do
      proxy.pass
      client = connect(proxy)
      before&.call(client)
      proxy.shape(**shape)
      start = monotonic
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(seconds) { yield client } }
      assert_operator monotonic - start, :<, seconds + stretched(0.5)
    end
    assert_equal [true, false], [client.closed?, client.ping]
    assert_match(/make a new client/, assert_raises(Heddle::MySQL2::Unusable) { client.query("select 1") }.message)
    proxy.pass
    other = connect(proxy)
    assert_equal 2, other.query("select 2 as two").first["two"]
    other.close
  end
end

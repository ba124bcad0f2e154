# frozen_string_literal: true

require "test_helper"
require "support/both_modes"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"

# Statements that share one Sync: all of them happen, or none.
module PostgreSQLAtomicPipelineSuite
  include StreamHelpers
  include PostgreSQLHelpers

  DB = Heddle::DB
  Script = ScriptedPostgreSQL
  M = Script.method(:message)

  def with_db(url = postgresql.url, **options)
    in_host do
      db = DB.connect(url, timeout: 30, **options)
      db.exec("create temporary table p (n int primary key deferrable initially immediate)") if url == postgresql.url
      yield db
    ensure
      db&.close
    end
  end

  def numbers(db) = db.query_column("select n from p order by n")

  # @param statements [Array<String, Array>]
  # @return [Array<Future>, (ServerError, Array<DB::Error>)]
  def attempt(db, *statements)
    futures = nil
    db.pipeline(atomic: true) { |p| futures = statements.map { |sql, *values| p.query(sql, *values) } }
    futures
  rescue DB::ServerError => error
    [error, futures.map { |future| assert_raises(DB::Error) { future.value } }]
  end

  def test_all_statements_happen_in_one_flight
    with_db do |db|
      before = db.driver.stream.statistics[:flushes]
      futures = attempt(db, ["insert into p values (?), (?)", 1, 2], "select n, 'x' as t from p order by n",
        ["select ?::text", "y" * 10], "update p set n = n where false", "")
      assert_equal 1, db.driver.stream.statistics[:flushes] - before
      assert_equal [2, 0, 0, 0, 0], futures.map { |future| future.value.affected_rows }
      assert_equal [[], [[1, "x"], [2, "x"]], [["y" * 10]], [], []], futures.map { |future| future.value.rows }
      assert_equal %w[n t], futures[1].value.fields
      assert_equal [nil] * 5, futures.map { |future| future.value.following }
      refute_predicate db, :in_transaction?
      assert_equal [1, 2], numbers(db)
    end
  end

  def test_an_error_undoes_all_and_names_its_statement
    with_db do |db|
      error, outcomes = attempt(db, "insert into p values (1)", ["select ?::int, 1/0", 7], "insert into p values (2)")
      assert_equal ["22012", 2, "select ?::int, 1/0"], [error.sql_state, error.statement_number, error.sql]
      assert_match(/in statement 2 of the pipeline/, error.explanation)
      assert_same error, outcomes[1]
      assert_equal [DB::TransactionError] * 2, outcomes.values_at(0, 2).map(&:class)
      assert_match(/was undone: statement 2 of the pipeline failed \(division by zero\)/, outcomes[0].message)
      assert_match(/was not run: statement 2/, outcomes[2].message)
      assert_empty numbers(db)
      refute_predicate db, :in_transaction?
      assert_predicate db, :healthy?
    end
  end

  def test_the_place_in_the_statement_that_failed
    with_db do |db|
      error, = attempt(db, "select 1", ["select ?::int, nope", 1])
      assert_equal [2, 16], [error.statement_number, error.position]
    end
  end

  # The answer that comes after all statements is the commit's.
  def test_an_error_of_the_commit
    with_db do |db|
      error, outcomes = attempt(db, "set constraints all deferred", "insert into p values (1)",
        "insert into p values (1)")
      assert_kind_of DB::UniqueViolation, error
      assert_equal [nil, "commit"], [error.statement_number, error.sql]
      assert_match(/was undone: the commit of the pipeline failed/, outcomes.last.message)
      assert_empty numbers(db)
    end
  end

  # ---- in a transaction

  def test_a_pipeline_in_a_transaction_is_undone_alone
    with_db do |db|
      db.transaction do
        db.exec("insert into p values (1)")
        error, outcomes = attempt(db, "insert into p values (2)", "insert into p values (1)")
        assert_equal ["23505", 2], [error.sql_state, error.statement_number]
        assert_match(/undone/, outcomes[0].message)
        refute_predicate db, :needs_rollback?
        attempt(db, "insert into p values (3)", "insert into p values (4)")
        assert_equal 1, db.transaction_depth
      end
      assert_equal [1, 3, 4], numbers(db)
    end
  end

  def test_a_transaction_that_has_failed_refuses_the_pipeline
    with_db do |db|
      assert_raises(DB::TransactionError) do
        db.transaction do
          assert_raises(DB::ServerError) { db.query("select nope") }
          assert_raises(DB::TransactionError) { attempt(db, "select 1") }
        end
      end
    end
  end

  def test_a_transaction_that_a_statement_began
    with_db do |db|
      db.query("begin")
      assert_match(/statement began/, assert_raises(DB::TransactionError) { attempt(db, "select 1") }.message)
      db.query("rollback")
    end
  end

  # ---- what is refused, before anything is sent

  def test_other_databases_refuse_atomic_pipelines
    driver = Object.new.extend(DB::Driver).tap { |made| def made.description = "A base" }
    db = DB::Connection.new(driver, statement_cache: :never, statement_cache_size: 1)
    error = assert_raises(DB::Unsupported) { db.pipeline(atomic: true) { flunk } }
    assert_match(/A base has no atomic pipelines: run the pipeline in a transaction/, error.message)
  end

  def untouched(db)
    before = db.driver.stream.statistics[:bytes_sent]
    yield
    assert_equal before, db.driver.stream.statistics[:bytes_sent]
    refute_predicate db, :closed?
  end

  def test_statements_that_would_end_the_transaction
    with_db do |db|
      ["commit", "rollback", "begin", "start transaction", "prepare transaction 'x'"].each do |sql|
        untouched(db) do
          error = assert_raises(DB::TransactionError) { attempt(db, "insert into p values (1)", sql) }
          assert_includes error.message, sql
        end
      end
      assert_raises(ArgumentError) { attempt(db, "copy p from stdin") }
      assert_empty numbers(db)
    end
  end

  def test_values_that_cannot_be_bound
    with_db do |db|
      untouched(db) do
        {Object.new => TypeError, "\xff" => ArgumentError,
         (+"\xa4").force_encoding("EUC-JP") => EncodingError}.each do |value, expected|
          error = assert_raises(expected) { attempt(db, "insert into p values (1)", ["select ?", value]) }
          assert_match(/statement 2 of the pipeline; nothing was sent/, error.message)
        end
        assert_raises(ArgumentError) { attempt(db, ["select ?", 1, 2]) }
      end
      assert_equal 7, db.query_value("select 7")
    end
  end

  def test_a_block_that_raises
    with_db do |db|
      untouched(db) do
        assert_raises(RuntimeError) do
          db.pipeline(atomic: true) do |p|
            p.query("insert into p values (1)")
            raise "no"
          end
        end
      end
      untouched(db) { assert_equal :value, db.pipeline(atomic: true) { :value } }
      untouched(db) { assert_raises(ArgumentError) { db.pipeline(atomic: true, limit: 3) { flunk } } }
      error = assert_raises(DB::TransactionError) { db.pipeline(atomic: true) { |p| p.query("select 1").value } }
      assert_match(/after the block/, error.message)
    end
  end

  # ---- sizes

  # Both sides' sockets are full. Without reading, both sides would wait for each other.
  def test_answers_are_read_while_large_requests_are_sent
    with_db do |db|
      big = "x" * 2_000_000
      requests = Array.new(15) { ["select ?::text || 'y'", big] }
      futures = attempt(db, *requests)
      assert_equal [2_000_001], futures.map { |future| future.value[0][0].bytesize }.uniq
    end
  end

  def test_more_statements_than_any_limit
    with_db do |db|
      insertions = (1..1500).map { |n| ["insert into p values (?)", n] }
      error, = attempt(db, *insertions, "insert into p values (700)")
      assert_equal 1501, error.statement_number
      assert_empty numbers(db)
      attempt(db, *insertions)
      assert_equal (1..1500).to_a, numbers(db)
    end
  end

  def test_types_that_are_looked_up
    with_db do |db|
      db.query("create type pg_temp.mood as enum ('sad', 'ok')")
      futures = attempt(db, "select 'ok'::pg_temp.mood", "select array['sad', 'ok']::pg_temp.mood[]")
      assert_equal ["ok", %w[sad ok]], futures.map { |future| future.value[0][0] }
    end
  end

  def test_listeners_hear_of_each_statement
    with_db do |db|
      events = []
      listener = db.on_query { |event| events << [event.sql, event.error&.class] }
      attempt(db, "insert into p values (1)", "select 1/0", "select 2")
      assert_equal [["insert into p values (1)", DB::TransactionError], ["select 1/0", DB::ServerError],
        ["select 2", DB::TransactionError]], events
    ensure
      listener&.close
    end
  end

  # ---- servers that answer otherwise

  # @return what the client sent, one String of types for each request
  def scripted(answer)
    requests = Thread::Queue.new
    play = proc do |peer|
      peer.welcome
      loop do
        requests << peer.request.map(&:first).join
        peer.raw(answer)
      end
    end
    Script.play(play) { |server| with_db(server.url) { |db| yield db } }
    Array.new(requests.size) { requests.pop }
  end

  BOUND = [M["1"], M["2"], M["n"]].join
  DONE = BOUND + M["C", "INSERT 0 1\0"]

  def test_one_sync_for_all
    requests = scripted(DONE * 3 + Script.ready) do |db|
      assert_equal [1, 1, 1], attempt(db, "a", "b", "c").map { |future| future.value.affected_rows }
    end
    assert_equal ["PBDEPBDEPBDES"], requests
  end

  def test_an_answer_with_another_number_of_results
    [DONE, DONE * 3, DONE * 3 + Script.error("22012", "x", severity: "ERROR")].each do |answer|
      scripted(answer + Script.ready) do |db|
        error = assert_raises(DB::ProtocolError) { attempt(db, "a", "b") }
        assert_match(/another number of statements/, error.message)
        assert_predicate db, :closed?
      end
    end
  end

  def test_a_copy_in_the_middle
    scripted(BOUND + M["G", [0, 0].pack("Cn")]) do |db|
      assert_match(/COPY in the middle/, assert_raises(DB::ProtocolError) { attempt(db, "a", "b") }.message)
      assert_predicate db, :closed?
    end
  end

  def test_a_server_that_ends_the_session_in_the_middle
    scripted(DONE + Script.error("57P01", "terminating", severity: "FATAL")) do |db|
      error = assert_raises(DB::ConnectionLost) { attempt(db, "a", "b") }
      assert_equal 2, error.cause.statement_number
      assert_predicate db, :closed?
    end
  end
end

BothModes.define("PostgreSQLAtomicPipeline", PostgreSQLAtomicPipelineSuite)

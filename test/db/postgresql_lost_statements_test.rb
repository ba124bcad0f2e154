# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/scripted_postgresql"

# Statements that are not where they were prepared (26000), or whose name is taken already (42P05), as poolers and other
# clients of a session leave them; and those whose columns have changed since (0A000): prepared again once, and never in
# a transaction that has failed.
class PostgreSQLLostStatementsTest < Minitest::Test
  include StreamHelpers

  hard_deadline 60

  DB = Heddle::DB
  S = ScriptedPostgreSQL
  M = S.method(:message)

  # A session that has statements by their names. It counts and keeps what it was asked.
  class Session
    attr_reader :parsed, :statements

    # @return [Hash{String => String}] the types of messages that are refused next, each with the state of the error
    attr_reader :refusals

    # @param taken [Integer] the number of the last name that other clients have
    def initialize(taken: 0)
      @statements = {}
      @parsed = []
      @refusals = {}
      @taken = taken
      @state = "I"
    end

    def serve(peer)
      peer.welcome
      loop { peer.raw(answer(peer.request)) }
    end

    private

    def answer(request)
      out = +"".b
      request.each do |type, rest|
        failed = (type == "Q") ? simple(rest, out) : message(type, rest, out)
        next unless failed

        out << S.error(failed, "statement #{failed}", severity: "ERROR")
        @state = "E" if @state == "T"
        break
      end
      out << S.ready(@state)
    end

    def simple(rest, out)
      word = rest[/\A\w+/].upcase
      @state = {"BEGIN" => "T", "COMMIT" => "I", "ROLLBACK" => "I"}.fetch(word, @state)
      out << M["C", "#{word}\0"]
      nil
    end

    # @return [String, nil] the state of the error
    def message(type, rest, out)
      return "25P02" if @state == "E" && type != "C"
      return @refusals.delete(type) if @refusals.key?(type)

      case type
      when "P"
        name, sql, _, *types = rest.unpack("Z*Z*nN*")
        @parsed << name
        return "42P05" if @statements[name] || Integer(name.delete_prefix("h")) <= @taken

        @statements[name] = [sql, types.map { |type| type.zero? ? 25 : type }]
        out << M["1"]
      when "B"
        return "26000" unless @statements[rest.unpack("Z*Z*").last]

        out << M["2"]
      when "D"
        kind, name = rest.unpack("aZ*")
        out << M["t", [@statements[name].last.size, *@statements[name].last].pack("nN*")] if kind == "S"
        out << M["T", [1].pack("n") + "c\0".b + [0, 0, 25, -1, -1, 1].pack("NnNnNn")] if name
      when "E" then out << M["D", [1, 1].pack("nN") + "v"] << M["C", "SELECT 1\0"]
      when "C"
        @statements.delete(rest[1..].unpack1("Z*"))
        out << M["3"]
      end
      nil
    end
  end

  def with_session(**options)
    session = Session.new(**options)
    S.play(session.method(:serve).to_proc) do |server|
      db = DB.connect(server.url, timeout: 20, statement_cache: :always)
      yield db, session
    ensure
      db&.close
    end
  end

  def test_a_lost_statement_of_the_cache
    with_session do |db, session|
      3.times do
        assert_equal ["v"], db.query_column("select 1")
        session.statements.clear
      end
      assert_equal [3, 3, 1], [session.parsed.size, session.parsed.uniq.size, db.cached_statements]
    end
  end

  def test_a_lost_statement_that_the_program_keeps
    with_session do |db, session|
      statement = db.prepare("select 1")
      3.times do
        session.statements.clear
        assert_equal [["v"]], statement.query.rows
      end
      assert_equal 4, session.parsed.uniq.size
    end
  end

  # The transaction has failed: the caller learns why, and the next one prepares again.
  def test_a_lost_statement_in_a_transaction
    with_session do |db, session|
      statement = db.prepare("select 2")
      db.query("select 1")
      [-> { db.query("select 1") }, -> { statement.query }].each do |use|
        error = assert_raises(DB::ServerError) do
          db.transaction do
            session.statements.clear
            use.call
          end
        end
        assert_equal ["26000", false, false], [error.sql_state, db.in_transaction?, db.closed?]
        assert_equal ["v"], db.query_column("select 1")
        assert_equal [["v"]], statement.query.rows
      end
    end
  end

  # The transaction's retry prepares it again.
  def test_a_lost_statement_in_a_transaction_that_is_retried
    with_session do |db, session|
      statement = db.prepare("select 2")
      db.query("select 1")
      [-> { db.query("select 1").rows }, -> { statement.query.rows }].each do |use|
        tries = 0
        rows = db.transaction(retry: 1) do
          session.statements.clear if (tries += 1) == 1
          use.call
        end
        assert_equal [[["v"]], 2], [rows, tries]
      end
    end
  end

  # A session that begins its transactions by statements of its own.
  def test_a_lost_statement_in_a_transaction_of_sql
    with_session do |db, session|
      statement = db.prepare("select 2")
      session.statements.clear
      db.query_text("begin")
      assert_raises(DB::ServerError) { statement.query }
      db.query_text("rollback")
      db.query_text("begin")
      assert_equal [["v"]], statement.query.rows
    end
  end

  # PostgreSQL says so in the words of its locale.
  def test_a_statement_whose_columns_have_changed
    with_session do |db, session|
      statement = db.prepare("select 2")
      db.query("select 1")
      [-> { db.query("select 1").rows }, -> { statement.query.rows }].each do |use|
        session.refusals["B"] = "0A000"
        assert_equal [["v"]], use.call
        assert_empty session.refusals
      end
      assert_equal 4, session.parsed.uniq.size
    end
  end

  # What the statement itself runs may say the same.
  def test_errors_of_the_same_states_behind_bind
    with_session do |db, session|
      statement = db.prepare("select 2")
      db.query("select 1")
      %w[26000 42P05 0A000].each do |state|
        [-> { db.query("select 1").rows }, -> { statement.query.rows }, -> { db.query("select 3").rows }].each do |use|
          session.refusals["E"] = state
          error = assert_raises(DB::ServerError) { use.call }
          assert_equal [state, false], [error.sql_state, error.retryable?]
        end
      end
      assert_equal 3, session.parsed.uniq.size
    end
  end

  # A limit of time interrupts behind Parse: the server has a statement that nobody knows the columns of.
  def test_a_statement_that_was_parsed_and_not_described
    with_session do |db, session|
      statement = nil
      prepared = -> { (statement ||= db.prepare("select 2")).query.rows }
      in_transaction = -> { db.transaction { db.query("select 3").rows } }
      [-> { db.query("select 1").rows }, in_transaction, prepared].each do |use|
        session.refusals["D"] = "57014"
        assert_raises(DB::QueryCanceled) { use.call }
        2.times { assert_equal [["v"]], use.call }
      end
      assert_equal %w[h2 h4 h6], session.statements.keys # the others were closed
    end
  end

  # The types of the values have changed: it is prepared again in the same round trip.
  def test_a_statement_that_was_prepared_again_and_not_described
    with_session do |db, session|
      assert_equal [["v"]], db.query("select ?", 1).rows
      session.refusals["D"] = "57014"
      assert_raises(DB::QueryCanceled) { db.query("select ?", "text") }
      2.times { assert_equal [["v"]], db.query("select ?", "text").rows }
      assert_equal %w[h3], session.statements.keys
    end
  end

  def test_a_name_that_another_client_has
    with_session(taken: 1000) do |db, session|
      10.times { |n| assert_equal ["v"], db.query_column("select #{n}") }
      assert_equal [11, 10], [session.parsed.uniq.size, db.cached_statements]
    end
  end

  def test_a_name_that_another_client_has_for_a_statement_that_is_kept
    with_session(taken: 1000) do |db, session|
      assert_equal [["v"]], db.prepare("select 1").query.rows
      assert_equal 2, session.parsed.uniq.size
    end
  end

  # Nothing can be prepared again there.
  def test_a_name_that_another_client_has_in_a_transaction
    with_session(taken: 2) do |db, session|
      [-> { db.query("select 1") }, -> { db.prepare("select 1") }].each do |use|
        error = assert_raises(DB::ServerError) { db.transaction { use.call } }
        assert_equal ["42P05", false], [error.sql_state, db.closed?]
      end
      assert_equal 2, session.parsed.size
      assert_equal ["v"], db.query_column("select 1")
    end
  end

  # A server that refuses every name gets no endless requests.
  def test_names_that_are_all_taken
    with_session(taken: 1 << 32) do |db, session|
      2.times { assert_equal "42P05", assert_raises(DB::ServerError) { db.query("select 1") }.sql_state }
      assert_raises(DB::ServerError) { db.prepare("select 1") }
      assert_equal 6, session.parsed.size
      refute_predicate db, :closed?
    end
  end
end

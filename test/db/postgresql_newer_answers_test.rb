# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/scripted_postgresql"

# What servers say that are newer than the one at hand, and poolers.
class PostgreSQLNewerAnswersTest < Minitest::Test
  include StreamHelpers

  hard_deadline 60

  DB = Heddle::DB
  S = ScriptedPostgreSQL
  M = S.method(:message)

  def error(**fields) = M["E", fields.map { |name, value| "#{name}#{value}\0" }.join + "\0"]

  def notice(text) = M["N", "SWARNING\0VWARNING\0C01000\0M#{text}\0\0"]

  # Answers each request with the next of these, and hangs up behind the last.
  def connected(*answers, welcome: S.welcome, **options)
    play = lambda do |peer|
      peer.startup
      peer.raw(welcome)
      answers.each do |answer|
        loop { break if %w[S Q].include?(peer.read.first) }
        peer.raw(answer)
      end
    end
    S.play(play) do |server|
      db = DB.connect(server.url, timeout: 20, **options)
      yield db
    ensure
      db&.close
    end
  end

  # ---- the last words of a pooler, which names the severity once

  POOLER = {S: "FATAL", C: "08P01", M: "query_wait_timeout"}.freeze
  COPY_OUT = M["H", [0, 1, 0].pack("Cnn")]

  def test_the_last_words_of_a_pooler
    requests = [->(db) { db.query("select 1") }, ->(db) { db.query("select ?", []) }, ->(db) { db.prepare("select 1") },
      ->(db) { db.pipeline { |p| p.query("select 1") }.value }, ->(db) { db.transaction { nil } },
      ->(db) { db.pipeline(atomic: true) { |p| p.query("select 1") }.value },
      ->(db) { db.each_row("select 1") { nil } },
      ->(db) { db.query_text("select 1") }, ->(db) { db.copy_out("copy t to stdout") { nil } },
      ->(db) { db.copy_in("copy t from stdin") { nil } }, ->(db) { db.copy_in("copy t from stdin binary") { nil } }]
    requests.each_with_index do |request, index|
      connected(error(**POOLER)) do |db|
        lost = assert_raises(DB::ConnectionLost, index.to_s) { request.call(db) }
        assert_match(/query_wait_timeout \(08P01\) and closed the connection/, lost.message)
        assert_predicate db, :closed?
      end
    end
  end

  # With any names of the severity; a copy has begun by then.
  def test_the_last_words_in_the_middle_of_an_answer
    [{S: "FATAL"}, {S: "FATAL", V: "FATAL"}, {S: "FATALE", V: "FATAL"}, {S: "PANIC"}].each do |severity|
      words = error(**POOLER, **severity)
      connected(S.row("1") + words) do |db|
        assert_match(/query_wait_timeout/, assert_raises(DB::ConnectionLost) { db.query_text("select 1") }.message)
      end
      connected(COPY_OUT + M["d", "a\n"] + words) do |db|
        rows = []
        lost = assert_raises(DB::ConnectionLost) { db.copy_out("copy t to stdout") { |row| rows << row } }
        assert_match(/query_wait_timeout/, lost.message)
      end
    end
  end

  def test_an_error_that_is_not_the_last_word
    connected(error(S: "ERROR", C: "42601", M: "syntax") + S.ready, S.row("1") + S.ready) do |db|
      assert_equal "42601", assert_raises(DB::ServerError) { db.query_text("nope") }.sql_state
      assert_equal [["1"]], db.query_text("select 1").rows
    end
  end

  # ---- PostgreSQL 19

  def test_a_copy_of_json
    json = %w[{"a":"x\\\\ny"} {"a":null}]
    copied = COPY_OUT + json.map { |row| M["d", "#{row}\n"] }.join + M["c"] + M["C", "COPY 2\0"] + S.ready
    connected(copied) do |db|
      ["copy t to stdout (format json)", "copy t to stdout with (force_array, format 'json')"].each do |sql|
        refused = assert_raises(ArgumentError) { db.copy_out(sql) { flunk } }
        assert_match(/json.*raw: true/, refused.message)
      end
      rows = []
      assert_equal 2, db.copy_out("copy t to stdout (format json)", raw: true) { |row| rows << row }
      assert_equal json.map { |row| "#{row}\n" }, rows
    end
  end

  # The server writes it so since 19.
  def test_a_place_in_the_log
    column = "c\0".b + [0, 0, 3220, 8, -1, 1].pack("NnNnNn")
    answer = M["1"] + M["2"] + M["T", [1].pack("n") + column] + M["D", [1, 8, 1, 0x2f].pack("nNNN")] +
      M["C", "SELECT 1\0"] + S.ready
    {"18.1" => "1/2F", "19rc1" => "1/0000002F", "20.0 (Debian)" => "1/0000002F",
     "9.6.24" => "1/2F"}.each do |version, text|
      connected(answer, welcome: S.welcome({"server_version" => version})) do |db|
        assert_equal text, db.query_value("select lsn from t")
      end
    end
  end

  def test_warnings_at_the_login
    welcome = notice("MD5 is old") + S.welcome.sub(S.ready, notice("the password expires") + S.ready)
    connected(S.row("1") + S.ready, welcome: welcome) do |db|
      heard = []
      db.on_notice { |warning| heard << [warning.severity, warning.message] }
      assert_equal [["WARNING", "MD5 is old"], ["WARNING", "the password expires"]], heard
      db.query_text("select 1")
      db.on_notice { |warning| heard << warning }
      assert_equal 2, heard.size
    end
  end

  # ---- ways to log in that are not known here

  def test_mechanisms_that_are_not_known
    play = lambda do |peer|
      peer.startup
      peer.write("R", [10].pack("N") + "OAUTHBEARER\0\0")
      peer.read
    end
    S.play(play) do |server|
      [nil, "md5", "!scram-sha-256", "scram-sha-256"].each do |auth|
        refused = assert_raises(DB::LoginFailed) { DB.connect(server.url, timeout: 20, require_auth: auth).close }
        assert_match(/one of OAUTHBEARER, which are not known here/, refused.message)
      end
    end
  end
end

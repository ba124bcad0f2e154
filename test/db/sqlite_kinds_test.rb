# frozen_string_literal: true

require "test_helper"
require "support/sqlite_helpers"

# What Heddle takes a text for, and what SQLite makes of it. Each text is run below the connection's own checks, in a
# transaction with a savepoint: one that ends the transaction must be of the kind :commit, and after one that changes
# something for the connection's next user the session must count as changed.
class SQLiteKindsTest < Minitest::Test
  hard_deadline 60

  TRIGGER = "after insert on a begin select 1; insert into b values (case when 1 then 2 end); end"
  # The text, its kind, and whether it changes the session.
  TEXTS = [
    ["select 1", :plain], ["values (1)", :plain], ["select 'a;b'", :plain],
    ["with c as (select 1) select * from c", :plain], ["with c as (select 1) insert into a select * from c", :plain],
    ["with c (x) as materialized (select ')') insert into a select x from c returning x", :plain],
    ["insert into a values (1)", :plain], ["replace into a values (1)", :plain], ["delete from a", :plain],
    ["update a set x = 2 returning x", :plain], ["explain select 1", :plain], ["explain query plan select 1", :plain],
    ["explain commit", :plain], ["explain query plan rollback", :plain], ["explain create table c (x)", :plain],
    ["explain create trigger r #{TRIGGER}", :plain],
    ["pragma foreign_keys", :session], ["pragma table_info(a)", :session], ["pragma main.table_info = a", :session],
    ["pragma cache_size = 7", :session, true], ["pragma main.cache_size(7)", :session, true],
    ["pragma \"recursive_triggers\" = 1", :session, true], ["pragma [recursive_triggers] = 1", :session, true],
    ["explain pragma recursive_triggers = 1", :session, true],
    ["explain query plan pragma recursive_triggers(1)", :session, true], ["explain pragma table_info(a)", :session],
    ["create table c (x)", :other], ["create table temporary_c (x)", :other],
    ["create unique index i on a (x)", :other], ["create trigger r #{TRIGGER}", :other],
    ["create view v as select 1", :other], ["drop table b", :other],
    ["alter table b add column y", :other], ["analyze", :other], ["reindex", :other],
    ["vacuum", :plain], # keeping it prepared is harmless, and SQLite does not tell of it
    ["explain create temp table c (x)", :plain], ["create virtual table c using fts5(x)", :other],
    ["create virtual table temp.c using fts5(x)", :other, true], ["detach m", :other, true],
    ["create temp table c (x)", :other, true], ["create temporary view v as select 1", :other, true],
    ["create table temp.c (x)", :other, true], ["create table if not exists \"temp\".c (x)", :other, true],
    ["create view temp.v as select 1", :other, true], ["create unique index temp.i on t (x)", :other, true],
    ["create temp trigger r #{TRIGGER}", :other, true], ["create trigger temp.r after insert on t begin select 1; end",
      :other, true],
    ["attach ':memory:' as m", :other, true], ["savepoint another", :other], ["release s", :other],
    ["rollback to s", :other], ["rollback transaction to savepoint s", :other],
    ["begin", :commit], ["commit", :commit], ["commit transaction", :commit], ["end", :commit],
    ["end transaction", :commit], ["rollback", :commit], ["rollback transaction", :commit]
  ].freeze
  # Other ways to write the same.
  WAYS = {
    itself: ->(sql) { sql }, upper: ->(sql) { sql.sub(/\A[a-z ]+/, &:upcase) },
    line: ->(sql) { "-- it's ; one\n#{sql}" }, block: ->(sql) { "/* ; */#{sql}" }, mark: ->(sql) { "\uFEFF#{sql}" },
    semicolons: ->(sql) { ";; #{sql};" }, unfinished: ->(sql) { "#{sql} /* ; commit" },
    between: ->(sql) { sql.gsub(/(?<=\w) (?=\w)/, "/* ; ' */") }, lines: ->(sql) { sql.gsub(" ", "\n-- \"\n") },
    marks: ->(sql) { sql.gsub(" ", " \uFEFF") }, behind: ->(sql) { "select 1; #{sql}" },
    before: ->(sql) { "#{sql}; select 1" }
  }.freeze
  SETTINGS = %w[foreign_keys recursive_triggers cache_size query_only busy_timeout].freeze

  WAYS.each do |way, write|
    define_method(:"test_written_#{way}") do
      TEXTS.each do |text, kind, changes|
        sql = write.call(text)
        with_database { |db| assert_kind(db, sql, kind, changes) }
      end
    end
  end

  # Each look at the beginning of a statement went through all the others.
  def test_a_text_of_semicolons
    with_database do |db|
      assert_operator cpu_time { assert_equal :commit, db.driver.kind("#{";" * 100_000}commit") }, :<, stretched(3)
    end
  end

  # A pragma is carried out when it is prepared.
  def test_a_pragma_that_is_prepared
    with_database do |db|
      db.driver.settle_session
      db.prepare("pragma recursive_triggers = 1").close
      assert_predicate db.driver, :session_changed?
      db.driver.settle_session
      assert_raises(ArgumentError) { db.prepare("pragma recursive_triggers = 1; select 1") }
      assert_predicate db.driver, :session_changed?
    end
  end

  # SQLite cannot examine a statement for a table that one before it creates, so those behind it are examined in turn.
  def test_behind_a_statement_that_cannot_be_prepared_yet
    with_database do |db|
      made = "create table made (x); insert into made values (1);"
      assert_equal :other, db.driver.kind("#{made} commit")
      assert_raises(Heddle::DB::TransactionError) { db.query("#{made} commit") }
      assert_predicate db, :in_transaction?
      assert_equal 1, db.query_value("select count(*) from made")
      refute_predicate db.driver, :session_changed?
      db.query("drop table made; #{made} create temp table other (x)")
      assert_predicate db.driver, :session_changed?
    end
  end

  # UPDATE and DELETE generate no number, though an INSERT before has.
  def test_last_insert_id_of_statements_with_common_tables
    with_database do |db|
      assert_equal 1, db.query("insert into a values (1)").last_insert_id
      {
        "with c as (select 1) insert into a select * from c" => 2, "with c as (select 1) update a set x = 2" => nil,
        "\uFEFF with recursive \"c)\" (replace) as (select 1 union all values (')')), d as not materialized " \
          "(select 1) /* ) insert */ -- ) insert\n delete from a where x = 77 or x = 2" => nil,
        "with [c] as (select (1)), insert_c as (select 7) replace into a select * from insert_c" => 1,
        "with c as (select 1) update a set x = (select 3) returning x" => nil,
        "insert into a values (1) returning x" => 2
      }.each { |sql, id| assert_equal [id], [db.query(sql).last_insert_id], sql }
    end
  end

  # SQLite's own number is that of the last row, or one of an earlier statement.
  def test_last_insert_id_is_the_first_number_that_the_statement_generated
    with_database do |db|
      ["create table users (id integer primary key, name text unique, seen int default 0)",
        "create table pairs (k text primary key, v int) without rowid", "create table log (what text)",
        "create table before (what text)", 'create table "a ""table" (id integer primary key)',
        "create view names as select name from users", "create virtual table words using fts5(word)",
        "create trigger b before insert on users begin insert into before values (new.name), (new.name); end",
        "create trigger l after insert on users begin insert into log values (new.name), (new.name); end",
        "create trigger p after insert on pairs begin insert into log values (new.k); end",
        "create trigger n instead of insert on names begin insert into log values (new.name); end"]
        .each { |sql| db.query(sql) }
      [
        ["insert into log values ('x')", 1], ["insert into users (name) values ('a'), ('b'), ('c')", 1],
        ["insert into users (name) values ('d'), ('e')", 4],
        ["insert into users (name) values ('a') on conflict (name) do update set seen = seen + 1", nil],
        ["insert into users (name) values ('a'), ('f') on conflict (name) do update set seen = seen + 1", 6],
        ["insert into users (name) values ('a') on conflict do nothing", nil],
        ["insert or ignore into users (name) values ('a'), ('g')", 7], ["insert into pairs values ('k', 1)", nil],
        ["insert into names values ('x')", nil], ["replace into users (id, name) values (3, 'h')", 3],
        ['/* x */ insert into main."a ""table" values (70), (71)', 70],
        ["insert into words values ('w'), ('v')", 2], # of a virtual table SQLite tells the last row alone
        ["insert into log select name from users", 20], ["create table copy as select * from users", nil],
        ["update users set seen = 7", nil], ["insert into users (name) values (last_insert_rowid()) returning id", 8]
      ].each do |sql, id|
        assert_equal [id], [db.query(sql).last_insert_id], sql
        db.query("select 1")
      end
      assert_equal "26", db.query_value("select name from users where id = 8")
      statement = db.prepare("insert into users (name) values (?), (?)")
      db.query("alter table users add column more")
      assert_equal [9, 11], [%w[i j], %w[k l]].map { |names| statement.query(*names).last_insert_id }
    end
  end

  private

  def with_database
    db = Heddle::DB.connect("sqlite::memory:")
    ["create table a (x)", "create table b (x)", "create index k on b (x)", "create temp table t (x)", "begin",
      "savepoint s"].each { |sql| db.query(sql) }
    db.driver.settle_session
    yield db
  ensure
    db&.close
  end

  def assert_kind(db, sql, kind, changes)
    before = state(db)
    assert_equal [kind, changes || false], [db.driver.kind(sql), db.driver.session_changed?], sql
    run_below(db, sql)
    assert kind == :commit || db.in_transaction?, sql
    assert changes || state(db) == before, sql
  end

  # Without the checks of the connection and of the driver.
  def run_below(db, sql)
    native = db.driver.instance_variable_get(:@native)
    text = sql.dup.freeze
    offset = 0
    while offset
      prepared = native.prepare(text, offset)
      return refute_match(/syntax|unrecognized/, prepared.message, sql) if prepared.is_a?(Exception)

      native.run(prepared, [])
      offset = prepared.tail
      native.release(prepared)
    end
  end

  def state(db)
    queries = ["select type, name from temp.sqlite_schema", "select name from pragma_database_list"] +
      SETTINGS.map { |name| "pragma #{name}" }
    native = db.driver.instance_variable_get(:@native)
    queries.map do |sql|
      prepared, result = native.run_new(sql, [])
      native.release(prepared)
      result.rows
    end
  end
end

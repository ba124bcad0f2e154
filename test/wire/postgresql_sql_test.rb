# frozen_string_literal: true

require "test_helper"
require "support/postgresql_wire"

# wire/postgresql/sql*.c: what is a placeholder and what only looks like one, and what a statement does.
class PostgreSQLSQLTest < Minitest::Test
  QUESTIONS = {
    "select ?" => [1, "select $1"],
    "select ?, ?" => [2, "select $1, $2"],
    "select * from t where a = ? limit?" => [2, "select * from t where a = $1 limit $2"],
    "select ?1" => [1, "select $1 1"],
    "select ?::int[], a::text" => [1, "select $1::int[], a::text"],
    "select '?', '''?', \"?\", ?" => [1, "select '?', '''?', \"?\", $1"],
    "select E'\\'?', e'\\\\', ?" => [1, "select E'\\'?', e'\\\\', $1"],
    "select E'a'\n  'b\\'?' , ?" => [1, "select E'a'\n  'b\\'?' , $1"],
    "select E'a' -- '?\n 'b\\'?' , ?" => [1, "select E'a' -- '?\n 'b\\'?' , $1"],
    "select 'a\\', ?" => [1, "select 'a\\', $1"],
    "select U&'\\?', N'?', B'1', x'1F', U&\"?\", ?" => [1, "select U&'\\?', N'?', B'1', x'1F', U&\"?\", $1"],
    "select $$ ? $$, $a$ $$ ? $b$ $a$, ?" => [1, "select $$ ? $$, $a$ $$ ? $b$ $a$, $1"],
    "select a$b$?, ?" => [2, "select a$b$ $1, $2"],
    "select $ä$?$ä$ || ?" => [1, "select $ä$?$ä$ || $1"],
    "select 1 /* ? /* ? */ ? */ + ? -- ?\n+ ?" => [2, "select 1 /* ? /* ? */ ? */ + $1 -- ?\n+ $2"],
    "select 1 --?\r, ?" => [1, "select 1 --?\r, $1"],
    "select j ?? 'k', j ??| ?, j ??& ?, j @?? '$.a'" => [2, "select j ? 'k', j ?| $1, j ?& $2, j @? '$.a'"],
    "select ?||?" => [2, "select $1||$2"],
    "select :a, t[1:2]" => [0, "select :a, t[1:2]"],
    "select '?" => [0, "select '?"],
    "select ? /* '" => [1, "select $1 /* '"],
    "" => [0, ""],
    "select 1.5e?" => [1, "select 1.5e $1"]
  }.freeze

  def test_question_marks_become_numbers
    QUESTIONS.each { |sql, (count, expected)| assert_rewritten "questions", sql, count, expected }
  end

  def test_a_backslash_escapes_where_strings_are_not_standard
    assert_rewritten "questions_with_backslashes", "select 'a\\'?', ?", 1, "select 'a\\'?', $1"
    assert_rewritten "questions", "select 'a\\'?', ?'", 1, "select 'a\\'$1', ?'"
  end

  def test_a_text_with_numbers_is_left_alone
    ["select $1, j ? 'k', :a", "select j ?? $2, ?, $1"].each do |sql|
      %w[questions names].each { |way| assert_rewritten way, sql, sql[/\$2/] ? 2 : 1, sql, "native" }
    end
    assert_rewritten "questions", "select '$1', \"$2\", $$ $3 $$, a$4, ?", 1, "select '$1', \"$2\", $$ $3 $$, a$4, $1"
  end

  NAMES = {
    "select :a, :b_2, :a" => [2, "select $1, $2, $1"],
    "select :a::int, a::text, ':a', \":a\", $$:a$$ /* :a */" =>
      [1, "select $1::int, a::text, ':a', \":a\", $$:a$$ /* :a */"],
    "select f(x := :x), limit:n" => [2, "select f(x := $1), limit $2"],
    "select t[lo:hi], t[1:n], t[f(1):n], t[:lo::int : :hi], array[:a, :b]" =>
      [4, "select t[lo:hi], t[1:n], t[f(1):n], t[$1::int : $2], array[$3, $4]"],
    "select array[case when :a then 1 else :b end]" => [2, "select array[case when $1 then 1 else $2 end]"],
    "select t[1 :n], j ? 'k', j ?? 'k'" => [0, "select t[1 :n], j ? 'k', j ? 'k'"],
    "select :größe" => [1, "select $1"]
  }.freeze

  def test_names_become_numbers
    NAMES.each { |sql, (count, expected)| assert_rewritten "names", sql, count, expected }
  end

  def test_a_name_that_nothing_is_bound_to
    assert_equal "unknown name", PostgreSQLWire.ask("names", "select :a, :unknown")
  end

  def test_more_than_65535_placeholders
    assert_rewritten "questions", "?," * 65535, 65535, (1..65535).map { |number| "$#{number}," }.join
    assert_equal "too many", PostgreSQLWire.ask("questions", "?," * 65536)
  end

  KINDS = {
    "" => "", " ; -- nothing\n ;" => "",
    "select 1" => "select", "/* a /* b */ */ SELECT 1;" => "select", "(select 1) union (select 2)" => "select",
    "values (1)" => "select", "table t" => "select",
    "with a as (insert into t values (1) returning *), b as (select 1) update t set a = 1" => "update",
    "with recursive update (a) as materialized (select 1) select * from update" => "select",
    "(with a as (select 1) select * from a)" => "select",
    "merge into t using u on a = b when matched then delete" => "merge",
    "begin" => "begin", "start transaction read only" => "begin", "start" => "other",
    "commit and chain" => "commit", "END" => "commit", "commit prepared 'x'" => "commit prepared",
    "rollback" => "rollback", "abort work" => "rollback", "rollback to a" => "rollback to",
    "rollback work to savepoint a" => "rollback to", "rollback prepared 'x'" => "rollback prepared",
    "savepoint a" => "savepoint", "release a" => "release", "prepare transaction 'x'" => "prepare transaction",
    "prepare a as select 1" => "prepare", "deallocate all" => "deallocate",
    "copy t (a, b) from stdin with (format csv)" => "copy in", "copy (select a from stdin) TO STDOUT" => "copy out",
    "copy t from '/tmp/x'" => "copy", "copy t to program 'x'" => "copy",
    "set a = 1" => "set", "set session a = 1" => "set", "set local a = 1" => "set local",
    "set transaction read only" => "set local", "set constraints all deferred" => "set local",
    "reset all" => "reset", "discard all" => "discard", "listen a" => "listen", "notify a, 'x'" => "notify",
    "create table t (a int)" => "definition", "vacuum" => "other", "explain select 1" => "explain",
    "select 1; insert into t values (';'); commit" => "select,insert,commit",
    "create function f() returns int as $$ select 1; select 2 $$ language sql; select 1" => "definition,select",
    "create or replace function f() returns int begin atomic select 1; select case when a then 1 end; end; select 1" =>
      "definition,select",
    "create rule r as on insert to t do also (delete from u; delete from v); select 1" => "definition,select",
    "begin; select 1; end" => "begin,select,commit",
    # What a SELECT does to the session.
    "select 1 as a into temp t" => "definition", "with a as (select 1) select * into t from a" => "definition",
    "with a as (insert into t values (1) returning *) select * from a" => "select",
    "select pg_catalog.set_config('a', 'b', false)" => "select session", "select set_config('a', f(true), 'f')" =>
      "select session",
    "select SET_CONFIG ('a', lower('b'), TRUE), true" => "select", "select set_config from t where (true)" => "select",
    "select set_config('a', set_config('b', 'c', false), true)" => "select session",
    # Functions that are not known.
    "select pg_advisory_lock(1)" => "select calls", "select pg_advisory_xact_lock(1)" => "select calls",
    "select \"set_config\"('a', 'b', true)" => "select calls", "select U&\"set_config\" /* x */ (1)" => "select calls",
    "select pg_catalog.\"lower\"('x')" => "select calls", "select LOWER('x'), lower (b), count(*) from t" => "select",
    "insert into t (a, b) values (1, f(2))" => "insert calls", "insert into s.t as x (a, b) values (1, 2)" => "insert",
    "with recursive t(a) as (select 1) select * from t as u(b) where a in (1) and exists (select 1)" => "select",
    "select a::numeric(10, 2), cast(b as varchar(3)), array[(1)], row(1), (select 1) from t" => "select",
    "explain analyze select mine()" => "explain calls", "select (f).x, t.f from t" => "select",
    "insert into t select set_config('a', 'b', false)" =>
      "insert session",
    "select 'a" => "select unterminated", "select /*" => "select unterminated"
  }.freeze

  def test_kinds_of_statements
    KINDS.each { |sql, kinds| assert_equal kinds, PostgreSQLWire.ask("kinds", sql), sql }
  end

  private

  def assert_rewritten(way, sql, count, expected, how = "rewritten")
    answer = PostgreSQLWire.ask(way, sql)
    assert_match(/\A\d+ \w+ \h*\z/, answer, sql)
    parameters, said, text = answer.split(" ", 3)
    assert_equal [count, how, expected], [parameters.to_i, said, [text].pack("H*").force_encoding("UTF-8")], sql
  end
end

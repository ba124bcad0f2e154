# frozen_string_literal: true

require "test_helper"
require "heddle/db/mysql"
require "heddle/db/postgresql"

# What is a placeholder in a statement, and what only looks like one.
class PlaceholdersTest < Minitest::Test
  MYSQL = {
    "a = :b" => ["b"], ":a:b" => ["a"], "a:b" => [], "@x := :y" => ["y"], "::a" => [], ": a" => [], ":1" => [],
    "':a' \":b\" `:c`" => [], "-- :a\n:b" => ["b"], "#:a\n:b" => ["b"], "/* :a */:b" => ["b"], "5--:a" => ["a"],
    ":a_1-:é?" => ["a_1", "é", nil], "'it''s :a' :b" => ["b"], ":" => [], "(:a,:b)" => %w[a b]
  }.freeze
  POSTGRESQL = {
    "a = :b" => ["b"], "a::int" => [], ":a::int" => ["a"], "x[1:n]" => [], "':a' \":b\" $$:c$$" => [],
    "-- :a\n:b" => ["b"], "/* /* :a */ */:b" => ["b"], "a ? :b" => [nil, "b"], "a ?? b" => [nil], "a := 1" => []
  }.freeze
  private_constant :MYSQL, :POSTGRESQL

  def test_mysql
    MYSQL.each { |sql, names| assert_equal names, mysql.placeholders(sql).map(&:first), sql }
    ["'\\':a'", "/*! :a */", ":a 'b"].each do |sql|
      assert_includes assert_raises(ArgumentError, sql) { mysql.placeholders(sql) }.message, sql
    end
    assert_equal [["é", 4, 3], [nil, 8, 1]], mysql.placeholders("'é':é ?")
  end

  def test_postgresql
    POSTGRESQL.each { |sql, names| assert_equal names, postgresql.placeholders(sql).map(&:first), sql }
    ["$1 = :a", "'a", ":a $x$"].each do |sql|
      assert_includes assert_raises(ArgumentError, sql) { postgresql.placeholders(sql) }.message, sql
    end
  end

  # Names are found in the bytes of another encoding than the text's own.
  def test_texts_in_other_encodings
    {mysql => "?", postgresql => "$1"}.each do |driver, mark|
      %w[iso-8859-1 utf-16le windows-1252 euc-jp].each do |encoding|
        sql = (encoding == "euc-jp") ? "select 'あ', :n, 'い'" : "select 'é', :n, 'ü'"
        text, values = resolve(driver, sql.encode(encoding), {n: 7})
        assert_equal [sql.sub(":n", mark), [7]], [text, values], encoding
        text, = resolve(driver, sql.sub(":n", "?").encode(encoding), Heddle::DB.list([7]))
        assert_equal sql.sub(":n", mark), text
      end
      text, = resolve(driver, "select :\u00e9 || 'ü'".encode("iso-8859-1"), {"é".encode("iso-8859-1").to_sym => 7})
      assert_equal "select #{mark} || 'ü'", text
      assert_equal "select '\xff', #{mark}".b, resolve(driver, "select '\xff', :n".b, {n: 7})[0]
    end
  end

  # MySQL ends two dashes by any control character.
  def test_comments_of_mysql
    ["\x7f", "\x01", "\t"].each do |control|
      assert_equal ["b"], mysql.placeholders("--#{control}:a\n:b").map(&:first), control.inspect
    end
  end

  private

  def resolve(driver, sql, value)
    value = Hash.ruby2_keywords_hash(value) if value.is_a?(Hash)
    Heddle::DB.const_get(:Placeholders).resolve(driver, sql, [value])
  end

  # What needs no server.
  def mysql = Heddle::DB::MySQL::Driver.allocate

  def postgresql
    Heddle::DB::PostgreSQL::Driver.allocate.tap do |driver|
      driver.instance_variable_set(:@protocol, Heddle::DB::PostgreSQL.const_get(:Protocol).new)
    end
  end
end

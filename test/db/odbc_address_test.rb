# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/odbc_contract"

# What addresses and options of ODBC stand for, and what a program without the gem reads.
class ODBCAddressTest < Minitest::Test
  include LoopHelpers

  def setup
    require "heddle/db/odbc"
  end

  def test_connection_strings
    {"odbc:DSN=shop;UID=ann" => "DSN=shop;UID=ann",
     "odbc: DSN = shop ; uid=ann;" => "DSN=shop;uid=ann",
     "odbc:Driver={My Driver};Pwd={a;b}}c}" => "Driver=My Driver;Pwd={a;b}}c}",
     "odbc://ann:s%3Bt@db.example:99/base?Driver=X&Encrypt=yes" =>
       "SERVER=db.example;PORT=99;Driver=X;Encrypt=yes;UID=ann;PWD={s;t};DATABASE=base",
     "odbc:///base?DSN=shop&timeout=2" => "DSN=shop;DATABASE=base"}
      .each { |url, string| assert_equal string, settings(url)[:string].secret, url }
    assert_equal 2.0, settings("odbc:///base?DSN=shop&timeout=2")[:timeout]
    options = settings("odbc:dsn=shop;pwd=old", password: "new", database: "base", encoding: "iso-8859-1")
    assert_equal "dsn=shop;pwd=new;DATABASE=base", options[:string].secret
    assert_equal Encoding::ISO_8859_1, options[:encoding]
  end

  def test_a_password_is_not_shown
    string = settings("odbc:DSN=shop;PWD=secret", user: "ann")[:string]
    assert_equal ["DSN=shop"] * 2, [string.to_s, string.inspect[/ (.*)>/, 1]]
  end

  def test_invalid_addresses
    ["odbc:", "odbc:shop", "odbc:DSN=shop;;x", "odbc:=1"].each do |url|
      assert_match(/odbc:DSN=name/, assert_raises(ArgumentError, url) { Heddle::DB.connect(url) }.message)
    end
    assert_raises(ArgumentError) { Heddle::DB.connect("odbc:DSN=shop", encoding: "klingon") }
    assert_raises(ArgumentError) { Heddle::DB.connect("odbc:DSN=shop", booleans: true) }
    assert_raises(ArgumentError) { Heddle::DB.connect("odbc:DSN=shop", password: "a\0b") }
    ODBCSources.folder
    error = assert_raises(Heddle::DB::LoginFailed) { Heddle::DB.connect("odbc:DSN=nowhere;PWD=secret") }
    assert_match(/DSN=nowhere.*IM002.*`odbcinst -q -s`.*`odbcinst -q -d`.*odbcinst -j/, error.message)
    refute_includes error.message, "secret"
  end

  def test_without_the_gem
    out = assert_child(<<~RUBY)
      $LOAD_PATH.reject! { |path| File.exist?(File.join(path, "heddle-odbc.rb")) }
      require "heddle"
      begin
        Heddle::DB.connect("odbc:DSN=shop")
      rescue LoadError => error
        puts error.message
      end
    RUBY
    assert_match(/need the gem heddle-odbc: install unixODBC.*gem install heddle-odbc/, out)
  end

  # ---- what is told of a statement's text

  Family = Struct.new(:family, :ddl_commits) do
    def ddl_commits? = ddl_commits
  end
  private_constant :Family

  def test_kinds
    {"select 1" => :plain, " /* x */ ( select 1)" => :plain, "-- x\nUPDATE t set a = 1" => :plain,
     "set a = 1" => :other, "call p()" => :other, "savepoint a" => :other, "rollback to savepoint a" => :other,
     "rollback work to a" => :other, "rollback" => :commit, "rollback and chain" => :commit, "begin" => :commit,
     "select ';commit'" => :plain, "select 1; -- x\n commit" => :commit, "select 1;" => :plain,
     "set session autocommit = 1" => :commit, "create table t (a int)" => :other}
      .each { |text, kind| assert_equal kind, sql(:postgresql).kind(text), text }
    {"create table t (a int)" => :commit, "create temporary table t (a int)" => :other, "select @a := 1" => :session,
     "/*!50000 drop table t */" => :commit, "# x\nselect 1" => :plain, "--1" => :other}
      .each { |text, kind| assert_equal kind, sql(:mysql, ddl_commits: true).kind(text), text }
    assert_equal :other, sql(:sqlite).kind("explain pragma foreign_keys = 0")
    assert sql(:sqlite).changes_session?("explain pragma foreign_keys = 0")
    assert_equal :other, sql(:sqlserver).kind("rollback transaction a")
    assert_equal :commit, sql(:sqlserver).kind("rollback transaction")
  end

  def test_placeholders
    {:postgresql => ["select ?, :a, ':b', \"?\", a::int, b[1:2], $$ ? $$, $x$ :c $x$ -- ?\n /* /* ? */ :d */ , :é",
      [nil, "a", "é"]],
     :mysql => ["select `:a`, :b, 1--?, ? # :c\n, @x := 2 -- ?", ["b", nil, nil]],
     :sqlserver => ["select [:a ]]?], :b", ["b"]],
     :sqlite => ["select [?], `:a`, :b", ["b"]],
     nil => ["select 'it''s :a', ? -- :b", [nil]]}.each do |family, (text, names)|
      found = sql(family).placeholders(text)
      assert_equal names, found.map(&:first), text
      found.each { |name, offset, length| assert_equal name ? ":#{name}" : "?", text.byteslice(offset, length) }
    end
    ["select 'a\\'?'", "select /*! ? */ 1", "select 'a"].each do |text|
      assert_raises(ArgumentError, text) { sql(:mysql).placeholders(text) }
    end
  end

  # Its calls run on threads of the system's, for which a virtual clock does not wait.
  def test_a_simulation_refuses_it
    require "heddle/simulation"
    capture_io do
      Heddle::Simulation.run(seeds: 1) do
        error = assert_raises(Heddle::Simulation::Error) { Heddle::DB.connect("odbc:Driver=SQLite3;Database=:memory:") }
        assert_match(/ODBC/, error.message)
      end
    end
  end

  private

  def settings(url, **options) = Heddle::DB::ODBC::Driver.settings(url, options)

  def sql(family, ddl_commits: false)
    Heddle::DB::ODBC.const_get(:SQL).new(Family.new(family, ddl_commits))
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/sqlite_helpers"

# Children of fork. They inherit SQLite's memory of their parent's locks, and none of the locks.
class SQLiteForkTest < Minitest::Test
  include StreamHelpers
  include SQLiteHelpers

  DB = Heddle::DB
  private_constant :DB

  # The child would write a log that the parent, who sees no lock of it, deletes.
  def test_a_childs_own_connection_while_its_parent_read
    %i[wal delete].each { |mode| assert_childs_row_stays(mode) { |db| db.each_row("select n from t", fetch: 1).next } }
  end

  def test_a_childs_own_connection_while_its_parent_wrote
    %i[wal delete].each do |mode|
      assert_childs_row_stays(mode) do |db|
        db.start_transaction
        db.exec("insert into t values (1)")
      end
    end
  end

  # The parent's connection was collected there before the child opened one.
  def test_a_childs_own_connection_after_a_collection
    db = open_with_table(:wal)
    db.each_row("select n from t", fetch: 1).next
    ended, closed = IO.pipe
    child = in_a_child do
      closed.close
      db = nil
      3.times { GC.start }
      ended.read
      with_db { |own| own.exec("insert into t values (7)") }
    end
    db.close
    closed.close
    assert_equal "1", child.call
    with_db { |own| assert_equal [0, 7], own.query_column("select n from t") }
  end

  # SQLite's frames are on the stack of a child that a function has forked: they must not go on there.
  def test_a_fork_in_a_function_writes_once
    db = open_with_table(:wal)
    child = nil
    db.create_function("forked") do |n|
      child = fork if n == 1
      n
    end
    refused_in_child { db.exec("insert into t select forked(n) from (select 1 as n union all select 2)") }
    assert_predicate Process.wait2(child).last, :success?
    assert_equal [0, 1, 2], db.query_column("select n from t")
  ensure
    db&.close
  end

  # The child comes back from the conversion of a value, and would run the statement, too.
  def test_a_fork_in_an_argument
    db = open_with_table(:wal)
    statement = db.prepare("insert into t values (?)")
    child = nil
    value = Object.new
    value.define_singleton_method(:to_time) do
      child = fork
      Time.at(0)
    end
    refused_in_child { statement.exec(value) }
    assert_predicate Process.wait2(child).last, :success?
    assert_equal 2, db.query_value("select count(*) from t")
  ensure
    db&.close
  end

  def test_a_fork_in_a_wait_for_a_lock
    holder = open_with_table(:wal)
    holder.start_transaction(read_only: false)
    with_db(busy_timeout: 20) do |db|
      parent = Process.pid
      child = nil
      waiter = db.driver.instance_variable_get(:@waiter)
      waiter.define_singleton_method(:call) do |count|
        if count.zero?
          child = fork
          holder.rollback if Process.pid == parent
        end
        super(count)
      end
      begin
        db.exec("insert into t values (1)")
      rescue DB::ConnectionLost
        exit!(0) if Process.pid != parent
        raise
      ensure
        exit!(1) if Process.pid != parent
      end
      assert_predicate Process.wait2(child).last, :success?
      assert_equal [0, 1], db.query_column("select n from t")
    end
  ensure
    holder&.close
  end

  def test_a_fork_in_a_backup
    db = open_with_table(:wal)
    db.exec("insert into t select value from json_each(?)", "[#{"1," * 5000}1]")
    parent = Process.pid
    copy = File.join(@folder, "copy.db")
    child = nil
    begin
      db.backup(copy, pages: 1) { child ||= fork }
    rescue DB::ConnectionLost
      exit!(0) if Process.pid != parent
      raise
    ensure
      exit!(1) if Process.pid != parent
    end
    assert_predicate Process.wait2(child).last, :success?
    @path = copy
    with_db { |own| assert_equal ["ok", 5002], state_of(own) }
  ensure
    db&.close
  end

  private

  # Runs the block, in which the process forks: the child gets the error that the connection is its parent's, and ends.
  def refused_in_child
    parent = Process.pid
    yield
  rescue DB::ConnectionLost => error
    exit!((Process.pid != parent && error.message.include?("parent process")) ? 0 : 1)
  ensure
    exit!(2) if Process.pid != parent
  end

  # What the block leaves in the parent's connection at the fork does not matter to the child's.
  def assert_childs_row_stays(mode)
    db = open_with_table(mode)
    yield db
    ended, closed = IO.pipe
    child = in_a_child do
      closed.close
      ended.read
      with_db(journal_mode: mode) { |own| own.exec("insert into t values (7)") }
    end
    ended.close
    db.close # the last connection of all, as far as the locks tell
    closed.close
    assert_equal "1", child.call, mode
    with_db { |own| assert_equal ["ok", 2], state_of(own) }
  end

  def state_of(db) = [db.query_value("pragma integrity_check"), db.query_value("select count(*) from t")]

  def open_with_table(mode)
    Heddle::DB.connect("sqlite://#{@path}", journal_mode: mode).tap do |db|
      db.query("drop table if exists t")
      db.query("create table t (n int)")
      db.query("insert into t values (0)")
    end
  end

  def with_db(**options)
    db = Heddle::DB.connect("sqlite://#{@path}", busy_timeout: 10, **options)
    yield db
  ensure
    db&.close
  end

  # Runs the block in a child of fork.
  #
  # @return [#call] its value as a text, or its error, once it has ended
  def in_a_child
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      writer.write(yield)
    rescue Exception => error # standard:disable Lint/RescueException
      writer.write("#{error.class}: #{error.message}")
    ensure
      exit!(0)
    end
    writer.close
    lambda do
      assert reader.wait_readable(30), "the child did not end"
      reader.read.tap { Process.wait(pid) }
    ensure
      reader.close
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/odbc_contract"

# Calls of a driver that are interrupted at bad moments, on connections that go on.
class ODBCInterruptionsTest < Minitest::Test
  include StreamHelpers
  include ODBCContract

  hard_deadline 60

  COUNT = "with recursive c (n) as (select 1 union all select n + 1 from c where n < ?) select count(*) from c"
  FOREVER = 1 << 40
  private_constant :COUNT, :FOREVER

  def setup
    super
    @address = source("interruptions", "SQLite", Database: "#{ODBCSources.folder}/interruptions.db")
    @db = Heddle::DB.connect(@address, statement_cache: :always, timeout: 30)
  end

  def teardown
    @db&.close
    super
  end

  def test_a_kept_statement_that_was_interrupted_runs_again
    statement = @db.prepare(COUNT)
    2.times do
      assert_equal [5, 5], [@db.query_value(COUNT, 5), statement.query(5).rows.dig(0, 0)]
      [-> { @db.query(COUNT, FOREVER) }, -> { statement.query(FOREVER) }].each do |query|
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05, &query) }
        refute_predicate @db, :closed?
      end
    end
    assert_raises(ArgumentError) { @db.query(COUNT, 1, 2) }
    assert_raises(ArgumentError) { statement.query }
    assert_equal [5, 5], [@db.query_value(COUNT, 5), statement.query(5).rows.dig(0, 0)]
  end

  # SQLite's driver refuses to disconnect while there are prepared statements.
  def test_a_connection_that_is_closed_with_its_statements_leaves_no_file_open
    address = source("closed", "SQLite", Database: path = "#{ODBCSources.folder}/closed.db")
    statements = Array.new(3) do
      db = Heddle::DB.connect(address, statement_cache: :always)
      db.query("select 1")
      rows = db.each_row("select 1 union select 2", fetch: 1)
      rows.next
      db.start_transaction
      db.query("create table t (n int)")
      db.prepare("select 2").tap { db.close }
    end
    wait_until(what: "closed files") { open_files(path).zero? }
    statements.each { |statement| assert_raises(IOError, Heddle::DB::ConnectionLost) { statement.query } }
    statements.each(&:close)
  end

  # It would compute for ever, on a thread that nobody sees.
  def test_a_close_by_another_thread_ends_a_query
    address = source("ended", "SQLite", Database: path = "#{ODBCSources.folder}/ended.db")
    twice = ->(_, thread) { 2.times { thread.raise("interrupted") && sleep(0.01) } }
    ways = {close: ->(db, _) { db.close }, twice: twice}
    ways.each do |what, way|
      db = Heddle::DB.connect(address)
      thread = Thread.new { db.query(COUNT, FOREVER) }.tap { |one| one.report_on_exception = false }
      wait_until(what: "the query") { !db.at_rest? && thread.stop? }
      way.call(db, thread)
      assert_raises(RuntimeError, IOError) { thread.value }
      db.close
      wait_until(what: "the end of the query: #{what}") { open_files(path).zero? }
    end
  end

  # With rows still to be fetched.
  def test_a_kept_statement_that_was_interrupted_between_two_fetches
    rows = "with recursive c (n) as (select 1 union all select n + 1 from c limit ?) " \
      "select n, hex(zeroblob(500)) from c"
    assert_equal 3, @db.query(rows, 3).rows.size
    on_wait(2) { raise "interrupted" }
    assert_equal "interrupted", assert_raises(RuntimeError) { @db.query(rows, 5000) }.message
    refute_predicate @db, :closed?
    assert_equal 3, @db.query(rows, 3).rows.size
    @db.exec("drop table if exists t")
    @db.exec("create table t (n int)")
  end

  # The byte that told of the answer stayed in the pipe, and each later wait returned at once.
  def test_an_interrupt_behind_an_answer_makes_no_later_wait_spin
    on_wait(1) { raise "interrupted" }
    assert_raises(RuntimeError) { @db.query(COUNT, 500_000) }
    refute_predicate @db, :closed?
    waits = 0
    on_wait { waits += 1 }
    2.times { assert_equal 500_000, @db.query_value(COUNT, 500_000) }
    assert_operator waits, :<=, 2
  end

  # The number of its pipe belongs to another file by then.
  def test_a_close_behind_an_answer_reads_from_no_other_file
    reader = writer = nil
    descriptor = pipe.fileno
    on_wait(1) do
      @db.close
      reader, writer = IO.pipe
      writer << "precious"
    end
    assert_raises(Heddle::DB::ConnectionLost) { @db.query(COUNT, 500_000) }
    assert_equal [descriptor, "precious"], [reader.fileno, reader.read_nonblock(100)]
  ensure
    [reader, writer].each { |io| io&.close }
  end

  # The thread of the connection finds a statement that is to be run, and was given up already. The sanitizers notice
  # when it is freed first.
  def test_a_statement_that_is_given_up_before_it_runs
    20.times do
      client.run(COUNT, [3], 10, false).release
      wait_until(what: "the driver") { !client.busy? }
      assert_equal true, client.finish
    end
    assert_equal 3, @db.query_value(COUNT, 3)
  end

  # Values that are numbers, up to the end of the memory in which they are.
  def test_rows_of_digits_up_to_the_end_of_their_memory
    @db.exec("drop table if exists digits")
    @db.exec("create table digits (n integer)")
    16.times { @db.exec("insert into digits values (12345678)") }
    assert_equal [12_345_678] * 16, @db.query_column("select n from digits")
  end

  # Each connection kept room for the largest values that it had ever sent.
  def test_memory_of_large_values_is_given_back
    large = "x".b * 60_000_000
    connections = Array.new(8) { Heddle::DB.connect(@address, timeout: 30) }
    before = rss_kib
    connections.each { |db| assert_equal large.bytesize, db.query_value("select length(?)", large) }
    assert_operator rss_kib - before, :<, 320 << 10 # AddressSanitizer keeps freed memory for a while
  ensure
    connections&.each(&:close)
  end

  private

  # How many descriptors of this process are of this file.
  def open_files(path)
    skip "the system does not name open files" unless Dir.exist?("/proc/self/fd")
    Dir.children("/proc/self/fd").count do |number|
      File.readlink("/proc/self/fd/#{number}") == path
    rescue Errno::ENOENT
      false
    end
  end

  def client = @db.driver.instance_variable_get(:@client)

  def pipe = @db.driver.instance_variable_get(:@calls).instance_variable_get(:@ready)

  # Calls the block when a wait is over: the one of this number, or each.
  def on_wait(number = nil)
    count = 0
    pipe.define_singleton_method(:wait_readable) do |*arguments|
      super(*arguments).tap { yield if number.nil? || (count += 1) == number }
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/odbc_contract"

# A driver that fails in the middle, does not tell lengths, and takes its time to disconnect.
class ODBCFaultyTest < Minitest::Test
  include ODBCContract

  DB = Heddle::DB
  private_constant :DB

  hard_deadline 60

  SOURCE = File.expand_path("../support/faulty_odbc_driver.c", __dir__)
  private_constant :SOURCE

  def setup
    super
    @driver = File.join(ODBCSources.folder, "faulty.so")
    unless File.exist?(@driver) || system("cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-o", @driver, SOURCE)
      flunk "this test needs a C compiler and unixODBC's headers"
    end
    @db = connect
  end

  def teardown
    @db&.close
    super
  end

  # The driver's word for it is a warning, and such a row's values were those of the block before.
  def test_a_row_that_fails_within_a_block
    assert_equal (1..2500).to_a, @db.query_column("rows 2500 0")
    [1, 500, 1500, 2500].each do |bad|
      error = assert_raises(DB::ServerError, bad) { @db.query("rows 2500 #{bad}") }
      assert_equal ["22003", "refused"], [error.sql_state, error.message]
    end
    assert_equal 2500, @db.query_column("rows 2500 0").sum { 1 }
  end

  def test_a_name_without_room
    assert_match(/\An{250,511}\z/, @db.query("rows 1 0").fields.first)
  end

  def test_pieces_of_unknown_length
    @db.query("pieces")
    texts = @db.query_column("pieces")
    piece = 65_535
    assert_equal [2 * piece + 3, 2 * (piece - 1) + 3, 5], texts.map(&:size)
    assert_equal [true, true, "whole"], [*texts.first(2).map { |text| text.match?(/\Aa+end\z/) }, texts.last]
    assert_includes assert_raises(DB::ServerError) { @db.query("unclear") }.message, "how long"
  end

  def test_a_value_that_never_ends
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { @db.query("endless") } }
    refute_predicate @db, :closed? # the call has ended
  end

  # A cancel that came too late for the query that failed would interrupt the next one.
  def test_only_a_query_that_failed_by_the_cancel_leaves_the_connection_open
    {"HY008" => false, "40001" => true}.each do |state, closed|
      db = connect
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { db.query("wait #{state}") } }
      assert_equal closed, db.closed?, state
    ensure
      db&.close
    end
  end

  # SQLite's driver closes the statement for which SQLCancel is called, while another thread is in its SQLFetch.
  def test_a_driver_that_closes_what_it_cancels_is_asked_by_a_spare_statement
    db = connect(more: ";CLOSES=1")
    2.times do
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { db.query("wait HY008") } }
      refute_predicate db, :closed?
      assert_equal 1, db.exec("change")
    end
  ensure
    db&.close
  end

  # It could never be run again.
  def test_a_statement_that_cannot_be_prepared_again_once
    statement = @db.prepare("moody")
    @db.transaction { assert_equal 1, statement.exec }
    assert_equal "40001", assert_raises(DB::ServerError) { statement.exec }.sql_state
    assert_equal 1, statement.exec
  end

  # Their memory and that of the connection was never freed, nor was its pipe closed.
  def test_statements_that_are_closed_during_a_disconnect
    disconnect_amid # loads what is loaded once
    before = descriptors
    5.times { disconnect_amid }
    wait_until(what: "the ends of the pipes") { descriptors <= before }
  end

  # It waited a second for a thread that it does not have.
  def test_a_child_that_is_forked_during_a_disconnect
    connect(delay: 3).close
    sleep(0.05)
    assert_within(0.7) { Process.wait(fork { exit }) }
  end

  # What doc/limits.md says: the lock has nobody left who opens it.
  def test_a_lock_of_the_driver_at_a_fork
    holder = Thread.new { assert_raises(DB::Error) { @db.query("hold") } }
    wait_until(what: "the lock") { locked? }
    _, status = Process.wait2(fork { exit(child_connects? ? 0 : 7) })
    assert_equal 7, status.exitstatus
    @db.close
    assert holder.join(stretched(5))
    wait_until(what: "the lock's opening") { !locked? }
  end

  private

  def connect(delay: 0, more: "", **options)
    microseconds = (delay * 1_000_000).to_i
    DB.connect("odbc:Driver=#{@driver};DELAY=#{microseconds}#{more}", encoding: "UTF-8", timeout: 20, **options)
  end

  def locked?
    connect(more: ";ASKS=1").close
    false
  rescue DB::LoginFailed
    true
  end

  def child_connects?
    connect(connect_timeout: 0.3).close
    true
  rescue DB::ConnectTimeout
    false
  end

  def disconnect_amid
    db = connect(delay: 0.2)
    statement = db.prepare("change")
    db.close
    sleep(0.05)
    statement.close
  end

  def descriptors
    GC.start
    descriptor_count
  end
end

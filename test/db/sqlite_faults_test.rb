# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/sqlite_helpers"

# Full disks, folders and files that cannot be used, processes that die: clear errors, and nothing is lost.
class SQLiteFaultsTest < Minitest::Test
  include StreamHelpers
  include SQLiteHelpers

  DB = Heddle::DB
  private_constant :DB

  def test_a_full_database
    with_db(pragmas: {max_page_count: 20}) do |db|
      db.query("create table t (b blob)")
      stored = 0
      error = assert_raises(DB::ServerError) do
        1000.times { stored += db.exec("insert into t values (zeroblob(3000))") }
      end
      assert_equal ["53100", 13], [error.sql_state, error.code]
      assert_match(/full.*#{Regexp.escape(@path)}/, error.message)
      assert_match(/room/, error.explanation)
      assert_operator stored, :>, 3
      assert_sound(db, stored)
      assert_equal stored, db.exec("delete from t")
      assert_equal 1, db.exec("insert into t values (zeroblob(3000))")
    end
  end

  # The system refuses to let files grow, as a full disk does.
  def test_a_disk_that_is_full
    report = in_a_child do
      Signal.trap("XFSZ", "IGNORE")
      with_db do |db|
        db.query("create table t (b blob)")
        db.exec("insert into t values (zeroblob(3000))")
        Process.setrlimit(Process::RLIMIT_FSIZE, 256 << 10)
        stored = 1
        error = assert_raises(DB::ServerError) do
          500.times { stored += db.transaction { db.exec("insert into t values (zeroblob(3000))") } }
        end
        refute_predicate db, :in_transaction?
        "#{error.sql_state} #{stored} #{db.query_value("select count(*) from t")} " \
          "#{db.query_value("pragma integrity_check")}"
      end
    end
    state, stored, counted, sound = report.split
    assert_includes %w[53100 58030], state
    assert_equal [stored, "ok"], [counted, sound]
    with_db { |db| assert_sound(db, stored.to_i) }
  end

  def test_a_folder_and_a_file_that_allow_only_reads
    with_db(journal_mode: :delete) { |db| db.query("create table t (b blob)") }
    report = in_a_child do
      become_nobody
      File.chmod(0o500, @folder)
      errors = []
      with_db(journal_mode: :delete) { |db| errors << refused { db.exec("insert into t values (1)") } }
      errors << refused { DB.connect("sqlite://#{@folder}/new.db") }
      File.chmod(0o700, @folder)
      File.chmod(0o400, @path)
      with_db(journal_mode: :delete) do |db|
        errors << refused { db.exec("insert into t values (1)") }
        errors << db.query_value("select count(*) from t")
      end
      errors.join("|")
    end
    read_only, cannot, file, count = report.split("|")
    assert_match(/\A(ReadOnly|ServerError): .*#{Regexp.escape(@path)}/, read_only)
    assert_match(/\ALoginFailed: cannot open SQLite at .*new.db.*folder/m, cannot)
    assert_match(/\AReadOnly: attempt to write a readonly database/, file)
    assert_equal "0", count
  end

  def test_a_file_that_is_no_database_and_one_that_is_corrupt
    File.write(@path, "this is no database, but a text that is long enough to have a header\n" * 100)
    error = assert_raises(DB::LoginFailed) { DB.connect("sqlite://#{@path}") }
    assert_match(/not a database.*#{Regexp.escape(@path)}.*encrypted/m, error.message)
    assert_equal "XX001", error.cause.sql_state
    File.delete(@path)
    with_db(journal_mode: :delete) do |db|
      db.query("create table t (b blob)")
      50.times { db.exec("insert into t values (randomblob(3000))") }
    end
    File.open(@path, "r+b") { |file| file.seek(4096) && file.write("\xff".b * 40_960) }
    with_db do |db|
      error = assert_raises(DB::ServerError) { db.query("select count(*), sum(length(b)) from t") }
      assert_equal "XX001", error.sql_state
      assert_match(/malformed.*#{Regexp.escape(@path)}/, error.message)
      assert_match(/recover/, error.explanation)
    end
  end

  # The connection goes on with the file that has no name any more; a new one gets a new file.
  def test_a_file_that_is_removed
    with_db do |db|
      db.query("create table t (b blob)")
      [@path, "#{@path}-wal", "#{@path}-shm"].each { |file| FileUtils.rm_f(file) }
      begin
        assert_equal 0, db.query_value("select count(*) from t")
      rescue DB::ServerError => error
        assert_match(/#{Regexp.escape(@path)}/, error.message)
      end
      missing = assert_raises(DB::LoginFailed) { DB.connect("sqlite://#{@path}", create: false) }
      assert_match(/the file too \(create: false and read_only: make none\)/, missing.message)
      with_db { |other| assert_equal [], other.list_tables }
    end
    error = assert_raises(DB::LoginFailed) { DB.connect("sqlite://#{@folder}/nowhere/base.db") }
    assert_match(/whether the folder exists/, error.message)
  end

  def test_a_process_that_is_killed_in_mid_transaction
    with_db { |db| db.query("create table t (n integer primary key, b blob)") }
    3.times do
      reader, writer = IO.pipe
      pid = fork do
        reader.close
        db = connect
        loop do
          db.transaction do
            20.times { db.exec("insert into t (b) values (randomblob(2000))") }
            writer.syswrite(".")
          end
        end
      end
      writer.close
      assert reader.wait_readable(10), "the child did not begin"
      reader.readpartial(1)
      Process.kill(:KILL, pid)
      Process.wait(pid)
      reader.close
      with_db do |db|
        assert_equal "ok", db.query_value("pragma integrity_check")
        assert_equal 0, db.query_value("select count(*) % 20 from t")
        db.exec("delete from t")
      end
    end
  end

  # A child of fork has its parent's connection, and must neither use nor end it: the file's locks are the parent's.
  def test_a_child_of_fork_leaves_the_connection_alone
    with_db do |db|
      db.query("create table t (n int)")
      db.start_transaction
      db.exec("insert into t values (1)")
      report = in_a_child do
        error = assert_raises(IOError) { db.query("select 1") }
        assert_predicate db, :closed?
        db.close
        GC.start
        with_db(busy_timeout: 0.05) { |own| assert_raises(DB::LockTimeout) { own.exec("insert into t values (2)") } }
        error.message
      end
      assert_match(/fork|parent/, report)
      db.commit
      assert_equal [1], db.query_column("select n from t")
      assert_equal "ok", db.query_value("pragma integrity_check")
    end
  end

  def test_a_fork_in_the_middle_of_a_statement
    with_db do |db|
      db.create_function("forked") do
        pid = fork { exit!(db.closed? ? 0 : 1) }
        Process.wait2(pid).last.exitstatus
      end
      assert_equal 0, db.query_value("select forked()")
    end
  end

  def test_without_the_gem
    program = <<~RUBY
      require "heddle/db"
      module Kernel
        alias_method :found, :require
        def require(name)
          return found(name) unless name == "sqlite3"

          raise LoadError.new("cannot load such file").tap { |error| error.instance_variable_set(:@path, name) }
        end
      end
      begin
        Heddle::DB.connect("sqlite::memory:")
      rescue LoadError => error
        puts error.message
      end
    RUBY
    lib = File.expand_path("../../lib", __dir__)
    output = IO.popen([RbConfig.ruby, "-I#{lib}", "-e", program, {err: %i[child out]}], &:read)
    assert_match(/\AHeddle's SQLite driver uses .* gem sqlite3: add gem "sqlite3" to the Gemfile.*\n\z/, output)
  end

  private

  def with_db(**options)
    db = Heddle::DB.connect("sqlite://#{@path}", **options)
    yield db
  ensure
    db&.close
  end

  def refused
    yield
    "nothing"
  rescue DB::Error => error
    "#{error.class.name.split("::").last}: #{error.message}"
  end

  def assert_sound(db, rows)
    assert_equal ["ok", rows], [db.query_value("pragma integrity_check"), db.query_value("select count(*) from t")]
  end

  # @return [String] what the block returns in a child of fork
  def in_a_child
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      result = begin
        yield
      rescue Exception => error # standard:disable Lint/RescueException
        "#{error.class}: #{error.message}"
      end
      writer.write(result)
      writer.close
      exit!(0)
    end
    writer.close
    assert reader.wait_readable(30), "the child did not end"
    reader.read.tap { Process.wait(pid) }
  end

  # The superuser may write everywhere.
  def become_nobody
    return unless Process.uid.zero?

    FileUtils.chown_R(65_534, 65_534, @folder)
    Process::Sys.setgid(65_534)
    Process::Sys.setuid(65_534)
  end
end

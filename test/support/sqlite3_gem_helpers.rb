# frozen_string_literal: true

require "heddle"
require "heddle/sqlite3"
require "tmpdir"

# Connections of the gem sqlite3 for tests, to a file of their own, which is removed after the test.
module SQLite3GemHelpers
  # Counts without an end.
  ENDLESS = "with recursive c (n) as (select 1 union all select n + 1 from c) select count(*) from c"
  # Writes without an end.
  FLOOD = "with recursive c (n) as (select 1 union all select n + 1 from c) insert into rows select n from c"

  def setup
    super
    @folder = Dir.mktmpdir("heddle-sqlite3")
    @path = File.join(@folder, "base.db")
    @databases = []
    @db = database
    @db.execute_batch("pragma journal_mode = wal; create table rows (id integer)")
  end

  def teardown
    @databases.each { |database| close(database) }
    FileUtils.rm_rf(@folder)
    super
  end

  def database(path = @path, **options) = SQLite3::Database.new(path, options).tap { |database| @databases << database }

  # Until 2.0 the gem does not close a connection with a statement that the GC has yet to end.
  def close(database)
    database.close unless database.closed?
  rescue SQLite3::BusyException
    nil
  end

  # Counts so far, which takes some milliseconds for each hundred thousand.
  def counting(to) = ENDLESS.sub("from c)", "from c limit #{to})")

  def count(database = @db) = database.get_first_value("select count(*) from rows")

  # The CPU times of this thread between the turns of a task, meanwhile.
  def gaps
    stop = false
    gaps = []
    ticker = Heddle.spawn do
      last = cpu
      until stop
        sleep(0.001)
        gaps << (now = cpu) - last
        last = now
      end
    end
    yield
    stop = true
    ticker.value
    gaps
  end

  # Whether another fiber or thread is in the middle of a statement.
  def suspended?(database = @db) = database.heddle_handlers.suspended?

  def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
end

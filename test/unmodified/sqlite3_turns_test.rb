# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/sqlite3_gem_helpers"

# With heddle/sqlite3: who may use a connection while a statement of another task is suspended, waits for the locks of
# other connections, and what ends statements in their middle.
class SQLite3TurnsTest < UnmodifiedTestCase
  include SQLite3GemHelpers

  LONG = 500_000
  SECONDS = Float(ENV.fetch("HEDDLE_STRESS_SECONDS", 2))
  private_constant :LONG, :SECONDS

  def test_another_task_waits_for_its_turn
    statement = @db.prepare("select 7")
    Heddle.run do
      [-> { @db.execute("select 7") }, -> { statement.execute!.to_a }, -> { @db.execute_batch2("select 7") },
        -> { @db.changes }, -> { statement.reset! }, -> { @db.busy_timeout = 1000 }].each do |use|
        during_a_statement { use.call }
      end
    end
    statement.close
  end

  # Also the very statement that is suspended, whose end would free it.
  def test_another_task_closes
    Heddle.run do
      statement = @db.prepare(counting(LONG))
      task = Heddle.spawn { statement.execute!.to_a }
      wait_until { suspended? }
      statement.close
      assert_equal [[LONG]], task.value
      assert_raises(SQLite3::Exception) { statement.step }

      task = Heddle.spawn { @db.execute(counting(LONG)) }
      wait_until { suspended? }
      @db.close
      assert_equal [[LONG]], task.value
      assert_predicate @db, :closed?
    end
  end

  def test_a_thread_waits_for_its_turn
    Heddle.run do
      during_a_statement { Thread.new { @db.execute("select 7") }.value }
    end
  end

  def test_a_deadline_ends_the_wait_for_a_turn
    Heddle.run do
      task = Heddle.spawn { @db.execute(ENDLESS) }
      wait_until { suspended? }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { @db.execute("select 7") } }
      task.cancel
      task.wait
    end
    assert_equal [[7]], @db.execute("select 7")
  end

  def test_waits_for_a_lock_overlap
    holder = database
    holder.execute("begin immediate")
    Heddle.run do
      assert_within(0.9, at_least: 0.3) do
        tasks = Array.new(5) do
          Heddle.spawn do
            mine = database
            mine.busy_timeout = 300
            assert_raises(SQLite3::BusyException) { mine.execute("insert into rows values (1)") }
          end
        end
        tasks.each(&:value)
      end
      @db.busy_timeout(5000)
      task = Heddle.spawn { @db.execute("insert into rows values (1)") }
      sleep(0.02)
      holder.execute("rollback")
      task.value
    end
    assert_equal 1, count
  end

  def test_a_deadline_or_a_cancel_ends_the_wait_for_a_lock
    holder = database
    holder.execute("begin immediate")
    @db.busy_timeout = 8000
    Heddle.run do
      assert_within(0.15, at_least: 0.1, remeasure: 5) do
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { @db.execute("insert into rows values (1)") } }
      end
      task = Heddle.spawn { @db.execute("insert into rows values (1)") }
      wait_until { suspended? }
      task.cancel
      assert_raises(Heddle::TaskCancelled) { task.value }
      holder.execute("rollback")
      @db.execute("insert into rows values (1)")
    end
    assert_equal 1, count
  end

  def test_the_time_for_a_lock_in_a_plain_thread
    holder = database
    holder.execute("begin immediate")
    @db.busy_timeout = 100
    assert_within(0.2, at_least: 0.1, remeasure: 5) do
      assert_raises(SQLite3::BusyException) { @db.execute("insert into rows values (1)") }
    end
    @db.busy_timeout = 0
    assert_within(0.05, remeasure: 5) do
      assert_raises(SQLite3::BusyException) { @db.execute("insert into rows values (1)") }
    end
  end

  def test_sqlites_own_pragma
    holder = database
    holder.execute("begin immediate")
    assert_equal [[0]], @db.execute("pragma busy_timeout")
    @db.busy_timeout = 300
    assert_equal [[300]], @db.execute("PRAGMA main.busy_timeout")
    @db.execute("-- sets\n/* the pragma */ ; pragma/**/\"busy_timeout\" = 200")
    Heddle.run do
      found = gaps { assert_raises(SQLite3::BusyException) { @db.execute("insert into rows values (1)") } }
      assert_operator found.size, :>, 5
      @db.execute_batch2("pragma busy_timeout = 8000")
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { @db.execute("insert into rows values (1)") } }
    end
    assert_equal [[8000]], @db.execute("pragma busy_timeout")
  end

  # In a task its sleep lets others run, and so nobody else may use the connection.
  def test_a_busy_handler_in_ruby
    holder = database
    holder.execute("begin immediate")
    insert = -> { @db.execute("insert into rows values (1)") }
    Heddle.run do
      @db.busy_handler { |tries| sleep(0.001) && tries < 20 }
      task = Heddle.spawn { assert_raises(SQLite3::BusyException, &insert) }
      wait_until { suspended? }
      assert_equal 0, count
      task.value
      @db.busy_handler { raise IndexError, "no" }
      assert_raises(IndexError, &insert)
      @db.busy_handler { sleep }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02, &insert) }
      @db.busy_handler(nil)
      assert_raises(SQLite3::BusyException, &insert)
    end
    holder.execute("rollback")
    insert.call
    assert_equal 1, count
  end

  def test_a_backup_waits_for_its_turn
    @db.execute("insert into rows values (1)")
    Heddle.run do
      target = database(":memory:")
      during_a_statement do
        backup = SQLite3::Backup.new(target, "main", @db, "main")
        backup.step(-1)
        backup.finish
      end
      assert_equal 1, count(target)
    end
  end

  def test_a_thread_is_killed_in_the_middle_of_a_statement
    thread = Thread.new { Heddle.run { Heddle.spawn { @db.execute(ENDLESS) }.value } }
    wait_until { suspended? }
    thread.kill
    assert thread.join(stretched(5))
    assert_equal [[7]], @db.execute("select 7")
    thread = Thread.new { Heddle.run { @db.execute(ENDLESS) } }
    thread.report_on_exception = false
    wait_until { suspended? }
    thread.raise(IndexError, "interrupted")
    assert_raises(IndexError) { thread.value }
    assert_equal [[7]], @db.execute("select 7")
  end

  if Fiber.method_defined?(:kill)
    def test_a_fiber_is_killed_in_the_middle_of_a_statement
      ended = []
      Heddle.run do
        fiber = Fiber.new do
          @db.execute(ENDLESS)
        rescue Exception => error # standard:disable Lint/RescueException
          ended << error
        ensure
          ended << :killed
        end
        Heddle.spawn { wait_until { suspended? } && fiber.kill }
        fiber.resume
        assert_equal [:killed], ended
        assert_equal [[7]], @db.execute("select 7")
      end
    end
  end

  def test_a_fork_in_the_middle_of_a_statement
    Heddle.run do
      task = Heddle.spawn { @db.execute(counting(LONG)) }
      wait_until { suspended? }
      reader, writer = IO.pipe
      SQLite3::ForkSafety.suppress_warnings! if defined?(SQLite3::ForkSafety)
      pid = fork do
        writer.write(Heddle.run { database.execute("select 7") }.inspect)
        writer.close
        exit!(0)
      end
      writer.close
      assert_equal "[[7]]", reader.read
      Process.wait(pid)
      assert_predicate $?, :success?
      assert_equal [[LONG]], task.value
    end
  end

  def test_garbage_at_each_allocation
    Heddle.run do
      other = Heddle.spawn { Array.new(20) { database(":memory:").query("select 1") && sleep(0) } }
      GC.stress = true
      assert_equal [[20_000]], @db.execute(counting(20_000))
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.01) { @db.execute(ENDLESS) } }
      @db.execute("insert into rows values (?)", [1])
      GC.stress = false
      other.value
    end
    assert_equal 1, count
  ensure
    GC.stress = false
  end

  # Statements of the same connection, which the GC ends in the middle of another one.
  def test_statements_that_are_collected
    Heddle.run do
      task = Heddle.spawn { @db.execute(counting(LONG * 2)) }
      until task.status == :completed
        100.times { @db.query("select 1 union select 2").next } unless suspended?
        GC.start
        sleep(0)
      end
      assert_equal [[LONG * 2]], task.value
      20.times { 50.times { @db.query("select 1 union select 2").next } && @db.execute(counting(20_000)) && GC.start }
    end
  end

  def test_a_database_stays_consistent_whatever_ends_its_statements
    seed = Integer(ENV.fetch("SEED", Random.new_seed % 100_000))
    random = Random.new(seed)
    @db.execute("create table pairs (number integer, other integer)")
    ended = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS
    Heddle.run do
      shared = Array.new(3) { database.tap { |db| db.busy_timeout = 2000 } }
      until Process.clock_gettime(Process::CLOCK_MONOTONIC) > ended
        tasks = Array.new(6) { |index| Heddle.spawn { work(shared[index % 3], random) } }
        sleep(random.rand * 0.02)
        tasks.sample(3, random: random).each(&:cancel)
        tasks.each(&:wait)
        wrong = tasks.map(&:error).compact.grep_v(Heddle::Cancellation)
        assert_empty wrong, "seed #{seed}"
      end
    end
    assert_equal [["ok"]], @db.execute("pragma integrity_check")
    assert_equal 0, @db.get_first_value("select count(*) from pairs where number + other <> 0"), "seed #{seed}"
    assert_equal 0, @db.get_first_value("select count(*) % 2 from pairs"), "seed #{seed}"
  end

  private

  # Runs the block, which uses the connection, while a task's statement is suspended. The statement ends first.
  def during_a_statement
    task = Heddle.spawn { @db.execute(counting(LONG)) }
    wait_until { suspended? }
    yield
    assert_equal :completed, task.status
    assert_equal [[LONG]], task.value
  end

  # Two rows or none, in one statement.
  def work(db, random)
    number = random.rand(1_000_000)
    case random.rand(4)
    when 0 then Heddle.deadline(random.rand * 0.01) { db.execute(counting(LONG)) }
    when 1 then Heddle.deadline(random.rand * 0.05) { db.execute(FLOOD.sub("rows select n", "pairs select n, -n")) }
    when 2 then db.execute("insert into pairs values (?, ?), (?, ?)", [number, -number, -number, number])
    when 3 then db.execute("select sum(number) from pairs, (#{counting(1000)})")
    end
  rescue Heddle::DeadlineExceeded, SQLite3::BusyException
    nil
  end
end

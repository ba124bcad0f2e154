# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/loop_helpers"
require "support/sqlite3_gem_helpers"
require "support/least_scheduler"

# With heddle/sqlite3, the gem's statements let other tasks run, and end when they have to.
class SQLite3GivingWayTest < UnmodifiedTestCase
  include LoopHelpers
  include SQLite3GemHelpers

  TURNS = 50
  MOST = 0.005 # CPU time of this thread between two turns of another task
  private_constant :TURNS, :MOST

  # Each returns how to run a statement, by a library that knows nothing of Heddle's part.
  LIBRARIES = {
    gem: ->(test, path) { test.database(path).method(:execute) },
    sequel: lambda do |test, path|
      require "sequel"
      require "heddle/sequel"
      db = Sequel.sqlite(path, max_connections: 2, keep_reference: false)
      test.closes << db.method(:disconnect)
      ->(sql) { db[sql].all }
    end,
    active_record: lambda do |test, path|
      test.send(:active_record, isolation: :fiber, least: "7.1")
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: path, pool: 2, reaping_frequency: 0)
      test.closes << -> { test.send(:leave_active_record) }
      ->(sql) { ActiveRecord::Base.connection_pool.with_connection { |connection| connection.execute(sql) } }
    end
  }.freeze
  private_constant :LIBRARIES

  def closes = @closes ||= []

  def teardown
    closes.each(&:call)
    super
  end

  LIBRARIES.each do |name, library|
    define_method(:"test_a_long_statement_stops_no_other_task_with_#{name}") do
      execute = library.call(self, @path)
      found = Heddle.run do
        task = Heddle.spawn { execute.call(ENDLESS) }
        gaps { TURNS.times { sleep(0.005) } }.tap { task.cancel }
      end
      assert_operator found.size, :>=, TURNS
      # One gap may have a garbage collection in it.
      assert_operator found.sort[-2], :<=, stretched(MOST), found.max(5).inspect
    end

    define_method(:"test_a_deadline_ends_a_statement_with_#{name}") do
      execute = library.call(self, @path)
      Heddle.run do
        execute.call("select 1")
        assert_within(0.15, at_least: 0.1, remeasure: 5) do
          error = assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { execute.call(ENDLESS) } }
          refute_kind_of SQLite3::Exception, error.cause
        end
        assert_raises(Timeout::Error) { Timeout.timeout(0.05) { execute.call(ENDLESS) } }
        refute_empty execute.call("select 1")
      end
    end

    define_method(:"test_a_cancel_ends_a_statement_with_#{name}") do
      execute = library.call(self, @path)
      Heddle.run do
        task = Heddle.spawn { execute.call(ENDLESS) }
        sleep(0.01)
        assert_within(0.1, remeasure: 5) do
          task.cancel
          assert_raises(Heddle::TaskCancelled) { task.value }
        end
        refute_empty execute.call("select 1")
      end
    end
  end

  def test_concurrent_statements_return_the_right_results
    Heddle.run do
      results = Array.new(4) { |index| Heddle.spawn { database.execute(counting(300_000 + index)) } }.map(&:value)
      assert_equal (0..3).map { |index| [[300_000 + index]] }, results
    end
  end

  def test_all_ways_to_run_statements
    long = counting(200_000)
    Heddle.run do
      assert_gives_way { assert_equal [[200_000]], @db.execute(long) }
      assert_gives_way { assert_equal [200_000], @db.get_first_row(long) }
      assert_gives_way { @db.execute_batch("select 1; #{long}") }
      assert_gives_way { assert_equal [["200000"]], @db.execute_batch2(long) }
      assert_gives_way { @db.query(long) { |rows| assert_equal [200_000], rows.next } }
      assert_gives_way { @db.prepare(long) { |statement| assert_equal [[200_000]], statement.execute!.to_a } }
      assert_gives_way { @db.execute(FLOOD.sub("from c)", "from c limit 100000)")) }
      assert_equal 100_000, count
    end
  end

  def test_an_interrupted_write_leaves_the_transaction_as_sqlite_does
    Heddle.run do
      assert_raises(Heddle::DeadlineExceeded) do
        @db.transaction do
          @db.execute("insert into rows values (1)")
          Heddle.deadline(0.02) { @db.execute(FLOOD) }
        end
      end
      refute_predicate @db, :transaction_active?
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { @db.execute(FLOOD) } }
      assert_equal 0, count
      @db.transaction do
        @db.execute("insert into rows values (1)")
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { @db.execute(ENDLESS) } } # it only reads
      end
      assert_equal 1, count
    end
  end

  # The gem alone commits what a cancelled task has written so far.
  def test_a_cancel_rolls_back
    Heddle.run do
      [-> { sleep }, -> { @db.execute(ENDLESS) }, -> { @db.execute(FLOOD) }].each do |rest|
        task = Heddle.spawn do
          @db.transaction do
            @db.execute("insert into rows values (1)")
            rest.call
          end
        end
        sleep(0.01)
        task.cancel
        assert_raises(Heddle::TaskCancelled) { task.value }
        assert_equal :cancelled, task.status
        refute_predicate @db, :transaction_active?
        assert_equal 0, count
      end
    end
  end

  # Timeout raises what is no StandardError, too.
  def test_a_timeout_rolls_back
    Heddle.run do
      [-> { sleep }, -> { @db.execute(ENDLESS) }, -> { @db.execute(FLOOD) }].each do |rest|
        assert_raises(Timeout::Error) do
          Timeout.timeout(0.02) do
            @db.transaction do
              @db.execute("insert into rows values (1)")
              rest.call
            end
          end
        end
        refute_predicate @db, :transaction_active?
        assert_equal 0, count
      end
    end
  end

  ENDS = {
    thread: ->(rest) { Thread.new { rest.call { Thread.current.kill } }.join },
    interrupt: ->(rest) { Thread.new { assert_raises(Interrupt) { rest.call { raise Interrupt } } }.join },
    fiber: (->(rest) { Fiber.new { rest.call { Fiber.current.kill } }.resume } if Fiber.method_defined?(:kill))
  }.compact.freeze
  private_constant :ENDS

  ENDS.each do |name, way|
    define_method(:"test_the_end_of_a_#{name}_rolls_back") do
      instance_exec(method(:write_and), &way)
      refute_predicate @db, :transaction_active?
      assert_equal 0, count
    end
  end

  # These are the program's own ways.
  def test_a_jump_out_of_a_transaction_commits
    catch(:done) { write_and { throw :done } }
    @db.transaction do
      @db.execute("insert into rows values (2)")
      break
    end
    assert_raises(IndexError) { write_and { raise IndexError } }
    assert_raises(Timeout::Error) { write_and { raise Timeout::Error } }
    @db.transaction
    @db.execute("insert into rows values (3)")
    @db.commit
    assert_equal 3, count
  end

  def test_the_database_ends_an_interrupted_transaction_of_active_record
    LIBRARIES[:active_record].call(self, @path)
    Heddle.run do
      assert_raises(Heddle::DeadlineExceeded) do
        ActiveRecord::Base.transaction do
          connection = ActiveRecord::Base.connection
          connection.execute("insert into rows values (1)")
          Heddle.deadline(0.02) { connection.execute(FLOOD) }
        end
      end
    end
    assert_equal 0, count
  end

  def test_interrupt_still_ends_a_statement
    Heddle.run do
      task = Heddle.spawn { assert_raises(SQLite3::InterruptException) { @db.execute(ENDLESS) } }
      wait_until { suspended? }
      @db.interrupt
      task.value
    end
  end

  def test_functions_in_ruby_and_what_they_run
    @db.create_function("counted", 1) { |function, to| function.result = @db.get_first_value(counting(to)) }
    Heddle.run do
      assert_gives_way { assert_equal [[200_000]], @db.execute("select counted(200000)") }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { @db.execute("select counted(1e12)") } }
      assert_equal [[7]], @db.execute("select 7")
    end
  end

  def test_statement_timeout
    skip "this gem has none" unless @db.respond_to?(:statement_timeout=)
    @db.statement_timeout = 50
    [-> { Heddle.run(&_1) }, -> { _1.call }].each do |run|
      run.call(lambda do
        assert_within(0.1, at_least: 0.05, remeasure: 5) do
          assert_raises(SQLite3::InterruptException) { @db.execute(ENDLESS) }
        end
        # The clock runs anew for each statement.
        5.times { sleep(0.02) && @db.execute(counting(10_000)) }
      end)
    end
    @db.statement_timeout = 500 # a busy machine has to give other tasks some turns meanwhile
    Heddle.run { assert_gives_way { assert_raises(SQLite3::InterruptException) { @db.execute(ENDLESS) } } }
    @db.statement_timeout = 0
    Heddle.run { assert_gives_way { @db.execute(counting(500_000)) } }
  end

  # Such connections would stop each other for ever.
  def test_connections_that_share_a_cache_are_left_alone
    shared = ["file:#{@folder}/shared?mode=memory&cache=shared", "file:#{@folder}/other?%63ache=shared"]
    flags = SQLite3::Constants::Open::READWRITE | SQLite3::Constants::Open::CREATE | SQLite3::Constants::Open::URI
    first, second = Array.new(2) { database(shared.first, flags: flags) }
    assert_nil first.heddle_handlers
    assert_nil database(shared.last, flags: flags).heddle_handlers
    assert database("file:#{@folder}/third?cache=private", flags: flags).heddle_handlers
    first.execute("create table rows (id integer)")
    mine = database("file:#{@path}", flags: flags)
    mine.execute("attach '#{shared.first}' as other")
    Heddle.run do
      [first, mine].each do |long|
        task = Heddle.spawn { long.execute(counting(300_000)) }
        assert_equal [[0]], second.execute("select count(*) from rows")
        assert_equal [[300_000]], task.value
      end
    end
  end

  def test_elsewhere_the_gem_works_as_ever
    assert_equal [[300_000]], Heddle.deadline(0.001) { @db.execute(counting(300_000)) }
    Thread.new do
      Fiber.set_scheduler(LeastScheduler.new)
      Fiber.schedule { assert_equal [[300_000]], @db.execute(counting(300_000)) }
    end.join
  end

  def test_an_unknown_gem
    out = in_child(<<~RUBY, gems: true)
      require "heddle/db/sqlite"
      Heddle::DB::SQLite.const_get(:Handlers).define_singleton_method(:agree?) { |*| false }
      require "heddle/sqlite3"
    RUBY
    assert_match(/does not know this gem sqlite3 \(\d.*update heddle \(LoadError\)/, out.err)
  end

  private

  def write_and
    @db.transaction do
      @db.execute("insert into rows values (1)")
      yield
    end
  end

  # Other tasks run meanwhile.
  def assert_gives_way
    turns = 0
    ended = false
    other = Heddle.spawn { (turns += 1) && sleep(0) until ended }
    sleep(0)
    before = turns
    yield
    assert_operator turns - before, :>, 3
  ensure
    ended = true
    other.value
  end
end

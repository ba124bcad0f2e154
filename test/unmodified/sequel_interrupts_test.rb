# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/ways_to_interrupt"
require "minitest/mock"
require "heddle/timeout"

# A Sequel query is interrupted. The next user of its connection, the pool's only one, must neither wait for the rest
# of that query, nor find the connection closed or inside a transaction.
class UnmodifiedSequelInterruptsTest < UnmodifiedTestCase
  SECONDS = 20 # how long the query takes if nothing interrupts it
  AT_ONCE = 5

  ADAPTERS = {
    "postgres" => [:postgresql, "pg", "pg_sleep(#{SECONDS})"],
    "mysql2" => [:mariadb, "mysql2", "sleep(#{SECONDS})"],
    "trilogy" => [:mariadb, "trilogy", "sleep(#{SECONDS})"],
    "heddle-mysql" => [:mariadb, "sequel", "sleep(#{SECONDS})"],
    "heddle-postgresql" => [:postgresql, "sequel", "pg_sleep(#{SECONDS})"]
  }.freeze
  # timed_queue, the default of Ruby 3.2 and later, needs Ruby 3.2.
  POOLS = %i[threaded sharded_threaded single sharded_single].freeze +
    ((RUBY_VERSION >= "3.2") ? %i[timed_queue sharded_timed_queue] : [])
  # Afterwards pg's connection is used again, and trilogy's is replaced: so each way in a transaction and each pool is
  # tried with these two. The drivers of the others differ only in how they end a query.
  KEPT_AND_REPLACED = %w[postgres trilogy].freeze
  # One in which the ROLLBACK is sent by a task, and one by a thread that is ending.
  WAYS_IN_A_TRANSACTION = ["a deadline in a task", "the end of a thread"].freeze

  def setup
    super
    require "sequel"
    require "heddle/sequel"
  end

  def teardown
    end_queries if @settings && !passed?
    disconnect
    super
  end

  ADAPTERS.each_key do |adapter|
    WAYS_TO_INTERRUPT.each do |name, way|
      next if adapter == "mysql2" && name == "Timeout in a thread" # mysql2 defers it until the answer has arrived

      define_method(:"test_#{name.tr(" ", "_")}_on_#{adapter}") do
        assert_usable_after(adapter) { way.call(self, proc { slow }) }
      end

      next unless KEPT_AND_REPLACED.include?(adapter) || WAYS_IN_A_TRANSACTION.include?(name)

      define_method(:"test_#{name.tr(" ", "_")}_in_a_transaction_on_#{adapter}") do
        query = proc do
          @db.transaction do
            @db[:interrupted].insert(id: 1)
            slow
          end
        end
        assert_usable_after(adapter) { way.call(self, query) }
      end
    end

    # The deadline passes in the program's own code, so that it interrupts ROLLBACK itself.
    define_method(:"test_a_deadline_before_the_rollback_on_#{adapter}") do
      assert_usable_after(adapter) do
        Heddle.run do
          assert_raises(Heddle::DeadlineExceeded) do
            Heddle.deadline(INTERRUPTED_AFTER) do
              @db.transaction do
                @db[:interrupted].insert(id: 1)
                sleep 1
              end
            end
          end
        end
      end
    end

    define_method(:"test_a_deadline_that_is_rescued_in_a_transaction_on_#{adapter}") do
      assert_usable_after(adapter) do
        assert_raises(Sequel::DatabaseError) do
          @db.transaction do
            @db[:interrupted].insert(id: 1)
            begin
              Heddle.deadline(INTERRUPTED_AFTER) { slow }
            rescue Heddle::DeadlineExceeded
              @db[:interrupted].insert(id: 2)
            end
          end
        end
      end
    end

    unless adapter == "mysql2" # 0.5.7 crashes on a prepared statement without rows, also without Heddle
      define_method(:"test_prepared_statements_on_#{adapter}") do
        connect(adapter)
        statement = @db[:interrupted].where(id: :$id).prepare(:select, :by_id)
        assert_empty statement.call(id: 1)
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(INTERRUPTED_AFTER) { slow } }
        assert_empty assert_within(AT_ONCE) { statement.call(id: 1) }
      end
    end

    pools = KEPT_AND_REPLACED.include?(adapter) ? POOLS : []
    pools.each do |pool|
      define_method(:"test_the_pool_#{pool}_on_#{adapter}") do
        sharded = pool.start_with?("sharded") ? {servers: {}} : {}
        assert_usable_after(adapter, pool_class: pool, **sharded) do
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(INTERRUPTED_AFTER) { slow } }
        end
      end
    end

    (pools - %i[single sharded_single] | %i[threaded]).each do |pool|
      # As where Sequel is interrupted in its own pool, between the loan of a connection and the block.
      define_method(:"test_a_closed_connection_that_is_lent_already_in_the_pool_#{pool}_on_#{adapter}") do
        connect(adapter, pool_class: pool, **(pool.start_with?("sharded") ? {servers: {}} : {}))
        lend = @db.pool.method(:acquire)
        lent = lend.call(*[Sequel.current, :default].first(lend.arity))
        (adapter == "postgres") ? lent.finish : lent.close
        assert_equal 1, Heddle.deadline(AT_ONCE) { @db.get(1) }
      end
    end

    # Sequel does not see a raw connection's query until the connection comes back.
    define_method(:"test_a_raw_connection_on_#{adapter}") do
      assert_usable_after(adapter) do
        assert_raises(Heddle::DeadlineExceeded) do
          Heddle.deadline(INTERRUPTED_AFTER) { @db.synchronize { |raw| raw.query("select #{@slow}") } }
        end
      end
    end

    # An error that the server reports is no interrupt.
    define_method(:"test_server_errors_keep_the_connection_on_#{adapter}") do
      connect(adapter)
      before = identity
      assert_raises(Sequel::DatabaseError) { @db.get(Sequel.lit("nothing_of_this_name")) }
      assert_raises(IndexError) { @db.transaction { raise IndexError } }
      assert_equal 1, catch(:out) { @db.transaction { throw :out, 1 } }
      assert_equal before, identity
    end

    define_method(:"test_a_server_that_ended_the_connection_on_#{adapter}") do
      connect(adapter)
      end_connection(identity)
      assert_raises(Sequel::DatabaseDisconnectError) { @db.get(1) }
      assert_equal 1, @db.get(1)
    end
  end

  # Sequel's pool turns every exception of a connect into a DatabaseConnectionError. A task that rescues StandardError,
  # or connects again, would not end.
  ADAPTERS.each do |adapter, (_, library)|
    WAYS_TO_INTERRUPT.slice("a deadline in a task", "Timeout in a task", "a cancel").each do |name, way|
      next if adapter == "mysql2" # its connect is not interrupted

      define_method(:"test_#{name.tr(" ", "_")}_in_a_connect_on_#{adapter}") do
        require library
        silent = TCPServer.new("127.0.0.1", 0)
        @db = Sequel.connect(adapter: adapter, host: "127.0.0.1", port: silent.addr[1], user: "user", test: false,
          keep_reference: false)
        rescued = nil
        way.call(self, proc do
          @db.get(1)
        rescue => error
          rescued = error
          raise
        end)
        assert_nil rescued unless name == "a deadline in a task"
      ensure
        silent&.close
      end
    end
  end

  def test_an_interrupted_pg_connection_is_kept
    connect("postgres")
    before = identity
    Heddle.run { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(INTERRUPTED_AFTER) { slow } } }
    assert_equal before, identity
  end

  def test_a_pg_connection_that_cannot_be_cancelled_is_closed
    connect("postgres")
    before = identity
    raw = @db.synchronize(&:itself)
    raw.stub(:cancel, "no room for another connection") do
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(INTERRUPTED_AFTER) { slow } }
    end
    refute_equal before, assert_within(AT_ONCE, remeasure: 0) { identity }
  ensure
    @db.get(Sequel.function(:pg_terminate_backend, before)) if before
  end

  # Tasks of one thread have a connection each, with and without Sequel's fiber_concurrency.
  def test_tasks_do_not_share_a_connection
    connect("postgres", max_connections: 4)
    identities = Heddle.run do
      Array.new(3) { Heddle.spawn { @db.synchronize { [identity, sleep(0.1)].first } } }.map(&:value)
    end
    assert_equal identities.uniq, identities
  end

  # Sequel's pools wait with their lock held: for other threads' turn.
  (POOLS - %i[single sharded_single]).each do |pool|
    define_method(:"test_a_deadline_while_another_task_has_the_lock_of_the_pool_#{pool}") do
      sharded = pool.start_with?("sharded") ? {servers: {}} : {}
      @db = Sequel.mock(max_connections: 1, pool_timeout: AT_ONCE, keep_reference: false, pool_class: pool, **sharded)
      lock = @db.pool.instance_variable_get(:@mutex)
      Heddle.run do
        held = late = false
        task = Heddle.spawn do
          Heddle.deadline(INTERRUPTED_AFTER) do
            @db.synchronize do
              held = true
              sleep
            ensure
              late = true
            end
          end
        end
        sleep 0.001 until held
        lock.synchronize { sleep 0.001 until late }
        assert_raises(Heddle::DeadlineExceeded) { task.value }
        assert_equal 1, Heddle.deadline(AT_ONCE) { @db.synchronize { 1 } }
      end
    end
  end

  def test_a_setting_leaves_queries_alone
    %w[mysql2 trilogy].each do |adapter|
      connect(adapter, kill_queries: false)
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(INTERRUPTED_AFTER) { @db.get(Sequel.lit("sleep(1)")) } }
      assert_nil Thread.list.find { |thread| thread.name == "heddle kill query" }
      assert_equal 1, running("sleep(1)")
      wait_until(AT_ONCE, what: "the query's own end") { running("sleep(1)").zero? }
      disconnect
    end
  end

  def test_the_extension_alone
    disconnect
    name, = ADAPTERS.fetch("trilogy")
    server = server(name)
    script = <<~RUBY
      require "heddle"
      require "sequel"
      db = Sequel.connect(#{server.url.sub("mysql", "trilogy").dump}, max_connections: 1)
      db.extension(:heddle)
      begin
        Heddle.deadline(#{INTERRUPTED_AFTER}) { db.get(Sequel.lit("sleep(5)")) }
      rescue Heddle::DeadlineExceeded
        puts db.get(7)
      end
    RUBY
    assert_equal "7\n", IO.popen([RbConfig.ruby, "-W0", "-Ilib", "-e", script], err: %i[child out], &:read)
  end

  # Errors that may wrap an exception of Thread#raise.
  def wrapped = [Sequel::DatabaseError]

  private

  def assert_usable_after(adapter, **options)
    connect(adapter, **options)
    assert_within(AT_ONCE) do
      yield
      2.times { |i| assert_equal i, @db.get(i) }
      Heddle.run { assert_equal 7, @db.get(7) }
      assert_equal 0, @db[:interrupted].count
      @db.transaction { @db[:interrupted].insert(id: 3) }
      assert_equal 1, @db[:interrupted].delete
    end
    refute @db.in_transaction?
    wait_until(AT_ONCE, what: "the end of the query on the server") { running.zero? }
  end

  # A query that a failed test has left must not fail the tests after it.
  def end_queries
    disconnect
    @db = Sequel.connect(@settings)
    sleepers.each { |id| end_connection(id) }
  rescue Sequel::Error
    nil # the failure says more
  end

  def slow = @db.get(Sequel.lit(@slow))

  def identity = @db.get(Sequel.function((@db.database_type == :postgres) ? :pg_backend_pid : :connection_id))

  def end_connection(id)
    other = Sequel.connect(@settings)
    (@db.database_type == :postgres) ? other.get(Sequel.function(:pg_terminate_backend, id)) : other.run("kill #{id}")
  ensure
    other&.disconnect
  end

  def running(query = @slow) = sleepers(query).size

  # @return [Array<Integer>] the connections in which the query runs
  def sleepers(query = @slow)
    if @db.database_type == :postgres
      @db[:pg_stat_activity].where(state: "active").where(Sequel.lit("query like '%pg_sleep(%'"))
        .where(Sequel.lit("pid <> pg_backend_pid()")).select_map(:pid)
    else
      @db[Sequel[:information_schema][:processlist]].where(state: "User sleep").where(Sequel.like(:info,
        "%#{query}%")).select_map(:id)
    end
  end

  def connect(adapter, **options)
    name, library, @slow = ADAPTERS.fetch(adapter)
    require library
    db = server(name)
    @settings = {adapter: adapter, host: "127.0.0.1", port: db.port, user: db.username, password: db.password,
                 database: db.database, max_connections: 1, pool_timeout: AT_ONCE, keep_reference: false, **options}
    @db = Sequel.connect(@settings)
    @db.create_table?(:interrupted, **((name == :mariadb) ? {engine: "InnoDB"} : {})) { Integer :id }
    @db[:interrupted].delete
  end

  def disconnect
    @db&.disconnect
    @db = nil
  end
end

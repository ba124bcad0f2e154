# frozen_string_literal: true

require "bigdecimal"
require "date"
require "logger"
require "sequel"
require "stringio"
require "tmpdir"

# What Sequel's users expect of an adapter, on each database that has one. A test class has #url, and #slow: an
# expression that takes SECONDS.
module SequelSuite
  SECONDS = 20
  AT_ONCE = 5

  def setup
    super
    @db = connect
  end

  def teardown
    @db&.disconnect
    super
  end

  def connect(**options)
    Sequel.connect(url, max_connections: 2, pool_timeout: AT_ONCE, keep_reference: false, **options)
  end

  def version = @db.server_version

  def items(db = @db, **options)
    db.create_table!(:items, **options) do
      primary_key :id
      String :name, size: 60, unique: true
      Integer :number, null: false, default: 7
    end
    db[:items]
  end

  # ---- values

  VALUES = {
    integer: [Integer, 2**31 - 1], bignum: [:Bignum, -2**63], float: [Float, 2.125],
    string: [String, "žluťoučký 'kůň' \\ ?"],
    decimal: [BigDecimal, BigDecimal("12345.6789"), {size: [12, 4]}], date: [Date, Date.new(2024, 2, 29)],
    time: [Time, Time.local(2024, 2, 29, 12, 34, 56)], yes: [TrueClass, true], no: [FalseClass, false],
    blob: [File, "\x00\xff'\\\n".b]
  }.freeze

  def test_values_come_back_by_literals_and_by_bound_variables
    VALUES.each do |name, (type, value, options)|
      value = Sequel.blob(value) if type == File
      @db.create_table!(:kept) do
        Integer :id
        (type == :Bignum) ? column(:value, :Bignum) : column(:value, type, options || {})
      end
      kept = @db[:kept]
      kept.insert(id: 1, value: value)
      kept.call(:insert, {id: 2, value: value}, {id: :$id, value: :$value})
      kept.call(:insert, {id: 3, value: nil}, {id: :$id, value: :$value})
      assert_equal [value, value, nil], kept.order(:id).select_map(:value), name
      assert_kind_of value.class, kept.get(:value), name
    end
  end

  def test_a_time_of_day
    @db.create_table!(:kept) { column :value, Time, only_time: true }
    time = Sequel::SQLTime.create(23, 59, 58)
    @db[:kept].insert(value: time)
    assert_instance_of Sequel::SQLTime, @db[:kept].get(:value)
    assert_equal "23:59:58", @db[:kept].get(:value).strftime("%T")
  end

  def test_time_zones
    @db.create_table!(:kept) { Time :value }
    time = Time.utc(2024, 7, 1, 10, 20, 30)
    @db.timezone = :utc
    @db[:kept].insert(value: time)
    assert_equal time, @db[:kept].get(:value)
    Sequel.application_timezone = :local
    assert_equal [time, time.getlocal.utc_offset], @db[:kept].get(:value).then { |found| [found, found.utc_offset] }
    Sequel.application_timezone = nil
    @db.timezone = :local
    assert_equal Time.local(2024, 7, 1, 10, 20, 30), @db[:kept].get(:value)
    datetime_class(DateTime) { assert_equal DateTime, @db[:kept].get(:value).class }
  ensure
    Sequel.application_timezone = nil
  end

  # ---- statements

  def test_ids_counts_and_upserts
    ds = items
    assert_equal [1, 2], [ds.insert(name: "a"), ds.insert(name: "b")]
    assert_equal 2, ds.update(number: 7), "found rows count, also without a change"
    assert_equal 1, ds.where(name: "a").delete
    assert_equal 0, ds.where(name: "a").delete
    upsert(ds).insert(name: "b", number: 9)
    assert_equal [["b", 9]], ds.select_map(%i[name number])
    %w[c b].each { |name| ds.insert_ignore.insert(name: name) }
    assert_equal [%w[b c], 9], [ds.order(:name).select_map(:name), ds.where(name: "b").get(:number)]
    ds.import(%i[name number], [["d", 1], ["e", 2]])
    assert_equal %w[b c d e], ds.order(:name).select_map(:name)
  end

  def test_prepared_statements_and_bound_variables
    ds = items
    insert = ds.prepare(:insert, :add_item, name: :$name)
    assert_equal [1, 2], %w[a b].map { |name| insert.call(name: name) }
    first = ds.where(name: :$name).prepare(:first, :by_name)
    3.times { assert_equal 2, first.call(name: "b")[:id] }
    assert_nil first.call(name: "?")
    assert_equal 1, ds.where(name: :$name).prepare(:update, :change, number: :$number).call(name: "a", number: 1)
    assert_equal [1, 7], ds.order(:id).where { id > :$id }.call([:map, :number], id: 0)
    assert_equal 1, ds.where(id: :$id).call(:delete, id: 1)
    # The name now stands for another text.
    second = ds.select(:number).where(name: :$name).prepare(:first, :by_name)
    assert_equal({number: 7}, second.call(name: "b"))
  end

  # Sequel's documents ask programs to freeze their database.
  def test_a_frozen_database
    items
    @db.freeze
    ds = @db[:items]
    assert_equal 1, ds.prepare(:insert, :add_to_frozen, name: :$name).call(name: "a")
    2.times { assert_equal 1, ds.where(name: :$name).prepare(:first, :find_in_frozen).call(name: "a")[:id] }
    assert_equal ["a"], ds.where(id: :$id).call([:map, :name], id: 1)
    assert_equal 1, @db.transaction { ds.where(name: "a").delete }
  end

  def test_savepoints_isolation_and_rollback
    ds = items
    @db.transaction(isolation: :serializable) do
      ds.insert(name: "a")
      @db.transaction(savepoint: true) do
        ds.insert(name: "b")
        raise Sequel::Rollback
      end
      assert_equal 1, ds.count
    end
    assert_raises(IndexError) { @db.transaction { ds.delete && raise(IndexError) } }
    @db.transaction(rollback: :always) { ds.delete }
    assert_equal ["a"], ds.select_map(:name)
    refute @db.in_transaction?
  end

  def test_rows_are_streamed
    ds = items
    ds.import([:name], Array.new(25) { |n| ["n#{n}"] })
    seen = []
    ds.order(:id).stream.each do |row|
      seen << row[:id]
      ds.where(id: row[:id]).update(number: 1) if row[:id] == 3 # the connection is free between two rows
    end
    assert_equal (1..25).to_a, seen
    assert_equal 25, ds.order(:id).paged_each(rows_per_fetch: 4) { |row| seen << row[:id] } && seen.size - 25
    assert_equal [1, 2], ds.order(:id).paged_each(rows_per_fetch: 4).first(2).map { |row| row[:id] }
    assert_equal 3, ds.order(:id).stream.each { |row| break row[:id] if row[:id] == 3 }
    assert_equal [:id, :name, :number], ds.where(id: 0).stream.tap(&:all).columns
    assert_equal 25, ds.count
  end

  # They may be of another database, and say nothing of this connection.
  def test_errors_of_the_block_that_reads_a_stream
    items.insert(name: "a")
    connection = @db.synchronize(&:itself)
    cause = IOError.new("the cause")
    lost = Heddle::DB::ConnectionLost.new("that of another database")
    raised = assert_raises(Heddle::DB::ConnectionLost) do
      @db[:items].stream.each do
        raise cause
      rescue IOError
        raise lost
      end
    end
    assert_equal [lost.object_id, cause.object_id], [raised, raised.cause].map(&:object_id)
    assert_same connection, @db.synchronize(&:itself)
    assert_raises(Sequel::DatabaseError) { @db["select nothing from nowhere"].stream.each { flunk } }
  end

  def test_schema
    items
    schema = @db.schema(:items).to_h
    assert_equal %i[integer string integer], schema.values.map { |column| column[:type] }
    assert_equal [true, false, false], schema.values.map { |column| column[:primary_key] }
    assert_equal [false, true, false], schema.values.map { |column| column[:allow_null] }
    assert_equal 7, schema[:number][:ruby_default]
    assert_equal [[:name]], @db.indexes(:items).values.map { |index| index[:columns] }
    assert_includes @db.tables, :items
    @db.alter_table(:items) { add_column :more, String }
    assert_equal %i[id name number more], @db[:items].columns
    assert_operator version, :>, 30_000
  end

  def test_migrations_and_dumps_of_the_schema
    Sequel.extension(:migration)
    %i[moved schema_info].each { |name| @db.drop_table?(name) }
    Dir.mktmpdir("heddle-sequel-") do |folder|
      File.write("#{folder}/001_moved.rb", "Sequel.migration { change { create_table(:moved) { primary_key :id } } }")
      File.write("#{folder}/002_name.rb", "Sequel.migration { change { add_column :moved, :name, String, size: 9 } }")
      Sequel::Migrator.run(@db, folder)
      @db.extension(:schema_dumper)
      assert_match(/\Acreate_table\(:moved\) do\n  primary_key :id\n  String :name, (:size=>|size: )9\nend\z/,
        @db.dump_table_schema(:moved))
      Sequel::Migrator.run(@db, folder, target: 0)
    end
    refute @db.table_exists?(:moved)
  ensure
    %i[moved schema_info].each { |name| @db.drop_table?(name) }
  end

  def test_logs
    log = StringIO.new
    @db.loggers << Logger.new(log)
    @db.sql_log_level = :info
    items.where(name: "a").first
    @db[:items].where(name: :$n).prepare(:first, :logged).call(n: "b")
    assert_match(/INFO -- : \([0-9.]+s\) SELECT \* FROM .items. WHERE \(.name. = 'a'\)/, log.string)
    assert_match(/EXECUTE logged; \["b"\]/, log.string)
  end

  # ---- errors

  def test_errors
    ds = items
    ds.insert(name: "a")
    error = assert_raises(Sequel::UniqueConstraintViolation) { ds.insert(name: "a") }
    assert_kind_of Heddle::DB::UniqueViolation, error.wrapped_exception
    assert_raises(Sequel::NotNullConstraintViolation) { ds.insert(name: "b", number: nil) }
    @db.create_table!(:lines) do
      Integer :number
      foreign_key :item, :items
      constraint(:positive) { number > 0 }
    end
    assert_raises(Sequel::ForeignKeyConstraintViolation) { @db[:lines].insert(number: 1, item: 77) }
    assert_raises(Sequel::CheckConstraintViolation) { @db[:lines].insert(number: -1) }
    error = assert_raises(Sequel::DatabaseError) { @db.get(Sequel.lit("nothing_of_this_name")) }
    assert_instance_of Sequel::DatabaseError, error
    assert_raises(Sequel::DatabaseError) { @db[:absent].where(name: :$n).prepare(:first, :wrong).call(n: 1) }
    assert_equal 1, ds.count
  ensure
    @db.drop_table?(:lines)
  end

  def test_a_refused_connect
    assert_raises(Sequel::DatabaseConnectionError) { Sequel.connect(url.sub(/:\d+(?=\/)/, ":1")) }
  end

  # ---- the pool

  def test_settings_of_each_connection
    seen = []
    log = StringIO.new
    db = connect(max_connections: 1, after_connect: ->(connection) { seen << connection }, test: false,
      connect_sqls: ["select 41 + 1"], logger: Logger.new(log))
    assert_equal 1, db.get(1)
    assert_equal [db.synchronize(&:itself)], seen
    assert_includes log.string, "select 41 + 1"
    refused = connect(after_connect: ->(connection) { (seen << connection) && raise(IndexError) }, test: false)
    assert_raises(IndexError, Sequel::DatabaseConnectionError) { refused.get(1) }
  ensure
    db&.disconnect
  end

  def test_shards
    db = connect(servers: {read_only: {}, other: {}})
    items(db)
    db.transaction(server: :other) { db[:items].server(:other).insert(name: "a") }
    assert_equal 1, db[:items].count
    connections = %i[default read_only other].map { |name| db.synchronize(name, &:itself) }
    assert_equal 3, connections.uniq.size
    db.extension(:server_block)
    db.with_server(:other) { assert_same connections.last, db.synchronize(&:itself) }
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.select(slow).server(:other).all } }
    assert_equal 1, db[:items].server(:other).count
  ensure
    db&.disconnect
  end

  def test_connections_that_are_validated_or_expire
    db = connect(max_connections: 1, test: false)
    db.extension(:connection_validator)
    db.pool.connection_validation_timeout = -1
    assert_same db.synchronize(&:itself), db.synchronize(&:itself)
    db.synchronize(&:close)
    assert_equal 1, db.get(1)
    short = connect(max_connections: 1, test: false)
    short.extension(:connection_expiration)
    short.pool.connection_expiration_timeout = 0.001
    short.pool.connection_expiration_random_delay = 0
    first = short.synchronize(&:itself)
    wait_until(AT_ONCE) { !short.synchronize(&:itself).equal?(first) }
    assert first.closed?
  ensure
    [db, short].each { |each| each&.disconnect }
  end

  def test_disconnect_while_tasks_use_the_connections
    Heddle.run do
      inside = Queue.new
      go_on = Queue.new
      tasks = Array.new(2) do |n|
        Heddle.spawn do
          @db.transaction do
            inside << @db.get(n)
            go_on.pop
            @db.get(n)
          end
        end
      end
      2.times { inside.pop }
      @db.disconnect
      2.times { go_on << true }
      assert_equal [0, 1], tasks.map(&:value)
    end
    assert_equal 3, @db.get(3)
  end

  def test_queries_of_a_thread_pool
    items.insert(name: "a")
    @db.extension(:async_thread_pool)
    count = @db[:items].async.count
    assert_equal ["a", 1], [@db[:items].async.first[:name], count.to_i]
  end

  # ---- fibers and threads

  def test_fifty_tasks_share_ten_connections
    db = connect(max_connections: 10)
    items(db).insert(name: "a")
    seen = Queue.new
    Heddle.run do
      Array.new(50) { |n| Heddle.spawn { db.synchronize { |c| seen << c.object_id } && db.get(Sequel.lit(n.to_s)) } }
        .each_with_index { |task, n| assert_equal n, task.value }
      held = []
      holders = Array.new(10) do
        Heddle.spawn { db.synchronize { |c| (held << c.object_id) && wait_until(AT_ONCE) { held.size == 10 } } }
      end
      holders.each(&:value)
      assert_equal 10, held.uniq.size, "no two tasks hold one connection"
    end
    assert_operator Array.new(seen.size) { seen.pop }.uniq.size, :<=, 10
    assert_operator db.pool.size, :<=, 10
  ensure
    db&.disconnect
  end

  def test_threads_share_connections
    values = Array.new(8) { |n| Thread.new { @db.get(Sequel.lit(n.to_s)) } }.map(&:value)
    assert_equal (0..7).to_a, values
    assert_operator @db.pool.size, :<=, 2
  end

  # Whether a connection can be used again after an interruption.
  def goes_on? = false

  def test_an_interrupted_query
    db = connect(max_connections: 1, query_timeout: 0.2)
    before = db.synchronize(&:itself)
    assert_within(AT_ONCE) do
      assert_raises(Heddle::DeadlineExceeded) { db.transaction { db.get(slow) } }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.run { Heddle.deadline(0.1) { db.get(slow) } } }
      assert_equal 1, db.get(1)
    end
    assert_equal [goes_on?, !goes_on?], [before.equal?(db.synchronize(&:itself)), before.closed?]
  ensure
    db&.disconnect
  end

  def test_a_forked_child_has_connections_of_its_own
    assert_equal 1, @db.get(1)
    reader, writer = IO.pipe
    pid = fork do
      writer.write(@db.get(2))
      exit!(0)
    end
    Process.wait(pid)
    writer.close
    assert_equal "2", reader.read
    assert_equal 3, @db.get(3)
  end

  private

  def datetime_class(klass)
    before, silent = Sequel.datetime_class, Sequel::Deprecation.output
    Sequel::Deprecation.output = false
    Sequel.datetime_class = klass
    yield
  ensure
    Sequel.datetime_class = before
    Sequel::Deprecation.output = silent
  end
end

# For the databases that have a server: a test class has #ends, which has the server end the connection of a Sequel
# database (made here, so that the statement that ends it can run while the connection is busy).
module SequelServerSuite
  def test_the_server_ends_a_connection
    db = connect(max_connections: 1)
    other = connect(max_connections: 1)
    items(db)
    ends(db, other).call
    lost { 2.times { db.get(1) } }
    lost do
      db.transaction do
        db[:items].insert(name: "a")
        ends(db, other).call
        2.times { db[:items].insert(name: "b") }
      end
    end
    now = ends(db, other)
    ender = Thread.new { sleep(0.1) && now.call }
    lost { db.get(slow) }
    ender.join
    assert_equal 0, db[:items].count
    db.extension(:connection_validator)
    db.pool.connection_validation_timeout = -1
    ends(db, other).call
    assert_equal 1, db.get(1)
  ensure
    [db, other].each { |each| each&.disconnect }
  end

  private

  def lost(&block)
    error = assert_raises(Sequel::DatabaseDisconnectError, &block)
    assert_kind_of Heddle::DB::Error, error.wrapped_exception
  end
end

# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "logger"
require "stringio"
require "tmpdir"

# What a request of Rails has set, with connections by fiber: the block of a run is a part of its caller's code; tasks
# begin with a copy of shard, role, Current attributes and log tags, and have connections of their own.
class UnmodifiedActiveRecordStateTest < UnmodifiedTestCase
  def setup
    super
    require "sqlite3"
    active_record(isolation: :fiber, least: "7.1")
    require "active_support/all"
    @folder = Dir.mktmpdir
    @configurations = ActiveRecord::Base.configurations
    ActiveRecord::Base.configurations = {ActiveRecord::ConnectionHandling::DEFAULT_ENV.call.to_s =>
      %w[one two].to_h { |name| [name, {adapter: "sqlite3", database: "#{@folder}/#{name}.db", pool: 5}] }}
    define_models
    @log = StringIO.new
    @logger = ActiveSupport::TaggedLogging.new(Logger.new(@log))
    %i[default second].each do |shard|
      on(shard) do
        Record.connection_pool.with_connection { |c| c.create_table(:items) { |t| t.string :name } }
        Item.create!(name: shard)
      end
    end
  end

  def teardown
    if @folder
      Record.connection_handler.clear_all_connections!(:all)
      Current.reset
      Time.zone = nil
      ActiveRecord::Base.configurations = @configurations
      %i[Item Current Record].each { |name| self.class.send(:remove_const, name) }
      FileUtils.rm_rf(@folder)
    end
    leave_active_record
    super
  end

  # ---- the block of a run

  def test_the_block_of_a_run_has_the_state_of_its_caller
    set do
      expected = [["second"], "ann", "Tokyo", "[request 7] said"]
      assert_equal expected, sees
      assert_equal expected, Heddle.run { sees }
      assert_equal expected, Heddle.run { Heddle.run { sees } }
      assert_equal expected, Heddle.run { Heddle.spawn { Heddle.run { sees } }.value }
    end
  end

  def test_what_the_block_of_a_run_sets_stays
    Heddle.run { Current.user = "bob" }
    assert_equal "bob", Current.user
    assert_raises(IOError) { Heddle.run { (Current.user = "eve") && raise(IOError) } }
    assert_equal "eve", Current.user
  end

  def test_the_block_of_a_run_cannot_write_where_its_caller_cannot
    Record.while_preventing_writes do
      assert_raises(ActiveRecord::ReadOnlyError) { Heddle.run { Item.create!(name: "no") } }
      assert_raises(ActiveRecord::ReadOnlyError) { Heddle.run { Heddle.spawn { Item.create!(name: "no") }.value } }
    end
  end

  def test_the_block_of_a_run_is_in_the_transaction_of_its_caller
    Item.transaction do
      Item.create!(name: "new")
      outside = connection
      assert_equal [%w[default new], outside], Heddle.run { [Item.order(:id).pluck(:name), connection] }
      Heddle.run { Item.create!(name: "within") }
      assert_equal 3, Item.count
      raise ActiveRecord::Rollback
    end
    assert_equal ["default"], Item.pluck(:name)
  end

  def test_a_lease_of_the_block_of_a_run_is_its_callers
    Record.connection_handler.clear_active_connections!(:all)
    leased = Heddle.run { connection }
    assert_same leased, connection
  end

  def test_the_query_cache_goes_on
    Item.cache do
      Item.count
      queries = counted { Heddle.run { 3.times { Item.count } } }
      assert_equal 0, queries
    end
  end

  # ---- tasks

  WAYS = {
    "Heddle.spawn" => ->(&block) { Heddle.run { Heddle.spawn(&block).value } },
    "a pool's spawn" => ->(&block) { Heddle.run { Heddle::FiberPool.new(2).spawn(&block).value } },
    "a pool's map" => ->(&block) { Heddle.run { Heddle::FiberPool.new(2).map([1]) { block.call }.first } },
    "Heddle.map" => ->(&block) { Heddle.map([1]) { block.call }.first },
    "Heddle.offload" => ->(&block) { Heddle.run { Heddle.offload(&block) } }
  }.freeze

  def test_tasks_have_a_copy_of_the_state
    set do
      WAYS.each do |name, way|
        assert_equal [["second"], "ann", "Tokyo", "[request 7] said"], way.call { sees }, name
      end
    end
  end

  # A task could else write in the clear what its spawner protects.
  def test_tasks_have_a_copy_of_the_context_of_encryption
    encryptor = -> { ActiveRecord::Encryption.context.encryptor.class }
    ActiveRecord::Encryption.protecting_encrypted_data do
      protected = encryptor.call
      WAYS.each do |name, way|
        within = -> { [encryptor.call, ActiveRecord::Encryption.without_encryption(&encryptor), encryptor.call] }
        assert_equal [protected, ActiveRecord::Encryption::NullEncryptor, protected], way.call(&within), name
        assert_equal protected, encryptor.call, name
      end
    end
    WAYS.each { |name, way| assert_equal ActiveRecord::Encryption::Encryptor, way.call(&encryptor), name }
  end

  def test_a_task_has_a_state_of_its_own
    Current.user = "ann"
    WAYS.each do |name, way|
      assert_equal "bob", way.call { (Current.user = "bob") && Current.user }, name
      assert_equal "ann", Current.user, name
    end
    seen = Heddle.run do
      task = Heddle.spawn { sleep(0.001) && [Current.user, logged("later")] }
      Current.user = "carl"
      @logger.tagged("late") { task.value }
    end
    assert_equal ["ann", "later"], seen
  end

  def test_the_next_task_of_a_fiber_begins_with_the_state_of_its_own_spawner
    Heddle.run do
      first = Heddle.spawn { (Current.user = "bob") && [Fiber.current, connection] }.value
      fiber, user, leased = Heddle.spawn { [Fiber.current, Current.user, connection] }.value
      assert_same first[0], fiber
      assert_nil user
      assert_same first[1], leased, "the connection is back in the pool when its task has ended"
    end
  end

  def test_a_task_has_a_connection_of_its_own
    Item.transaction do
      Item.create!(name: "new")
      outside = connection
      seen = Heddle.run { Heddle.spawn { [Item.pluck(:name), connection == outside] }.value }
      assert_equal [["default"], false], seen
      raise ActiveRecord::Rollback
    end
  end

  def test_a_task_that_ends_in_a_transaction
    Heddle.run do
      first = Heddle.spawn { connection.begin_transaction && [Item.create!(name: "lost"), connection].last }.value
      assert_equal [["default"], false], Heddle.spawn { [Item.pluck(:name), connection == first] }.value
    end
  end

  # ---- rows that the spawner's transaction has not committed

  def test_a_row_that_only_the_spawners_transaction_has
    Item.transaction do
      item = Item.create!(name: "new")
      [-> { Item.find(item.id) }, -> { Item.find([item.id]) }, -> { Item.find_by!(id: item.id) }, -> { item.reload },
        -> { Item.find(item.id.to_s) }].each do |find|
        WAYS.each do |name, way|
          error = assert_raises(ActiveRecord::RecordNotFound, name) { way.call(&find) }
          assert_match(/\ACouldn't find .*Item/, error.message)
          assert_match NOT_COMMITTED, error.message
          assert_includes error.message, "Item #{item.id}"
        end
      end
      assert_equal item, Heddle.run { Item.find(item.id) }
      error = assert_raises(ActiveRecord::RecordNotFound) { in_task { Item.find(item.id + 1) } }
      refute_match NOT_COMMITTED, error.message
      raise ActiveRecord::Rollback
    end
  end

  def test_what_other_code_says_is_not_found
    abstract = Class.new(ActiveRecord::Base) { self.abstract_class = true }
    self.class.const_set(:Unconnected, abstract)
    Item.transaction do
      Item.create!(name: "new")
      ["no model", nil, "String", self.class.name + "::Unconnected", Item].each do |model|
        error = assert_raises(ActiveRecord::RecordNotFound) do
          in_task { raise ActiveRecord::RecordNotFound.new("gone", model, "id", 9) }
        end
        assert_equal "gone", error.message
      end
      error = assert_raises(ActiveRecord::RecordNotFound) { in_task { raise ActiveRecord::RecordNotFound } }
      assert_equal ActiveRecord::RecordNotFound.name, error.message
      raise ActiveRecord::Rollback
    end
  ensure
    self.class.send(:remove_const, :Unconnected)
  end

  # Without the error an update of a new row changes nothing, and one of an old row waits for its spawner.
  def test_a_change_of_a_row_that_the_spawners_transaction_has_written
    old = Item.first
    other = Item.create!(name: "other")
    Item.transaction do
      old.update!(name: "changed")
      [old, Item.create!(name: "new"), Item.find(old.id)].each do |item|
        changes = [-> { item.update!(name: "no") }, -> { item.destroy }, -> { item.delete }, -> { item.lock! },
          -> { item.update_columns(name: "no") }, -> { item.with_lock {} }]
        changes.each do |change|
          error = assert_raises(Heddle::ActiveRecordSupport::UncommittedRow) { in_task(&change) }
          assert_kind_of Heddle::Error, error
          assert_match NOT_COMMITTED, error.message
          assert_includes error.message, "Item #{item.id}"
        end
      end
      assert_equal ["default", "other"], in_task { [old.reload, other.reload].map(&:name) }
      assert_raises(Heddle::ActiveRecordSupport::UncommittedRow) do
        in_task { Heddle.spawn { old.update!(name: "no") }.value }
      end
      assert_equal ["yes"], in_task { on(:second) { Item.first.update!(name: "yes") && Item.pluck(:name) } }
      raise ActiveRecord::Rollback
    end
    in_task { old.update!(name: "later") }
    assert_equal %w[later other], Item.order(:id).pluck(:name)
  end

  # As in Rails' transactional tests.
  def test_a_connection_that_all_tasks_share
    connection.create_table(:parts) { |table| table.references :item, foreign_key: true }
    sharing(Record.connection_pool) do
      item = Item.create!(name: "new")
      assert_equal "newer", in_task { Item.find(item.id).tap { |found| found.update!(name: "newer") }.name }
      assert in_task { item.update!(name: "newest") }
      error = assert_raises(ActiveRecord::InvalidForeignKey) do
        in_task { connection.execute("insert into parts (item_id) values (99)") }
      end
      refute_match OPEN, error.message
    end
    assert_equal ["default"], Item.pluck(:name)
  end

  def test_a_transaction_locks_the_connection_that_all_tasks_share
    sharing(Record.connection_pool) do
      Heddle.run do
        task = nil
        Item.transaction do
          task = Heddle.spawn { Item.count }
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { task.value } }
        end
        assert_equal 1, task.value
      end
    end
  end

  # SQLite has one lock for all of its rows.
  def test_a_wait_for_the_locks_of_the_spawners_transaction
    Item.transaction do
      Item.create!(name: "new")
      error = assert_raises(ActiveRecord::StatementInvalid) { in_task { Item.update_all(name: "no") } }
      assert_match(/locked.*#{OPEN}/mo, error.message)
      raise ActiveRecord::Rollback
    end
    error = assert_raises(ActiveRecord::StatementInvalid) { in_task { connection.execute("select from") } }
    refute_match OPEN, error.message
  end

  def test_more_tasks_than_connections_that_lease_one
    Record.connection_pool.release_connection
    names = Heddle.run { Heddle::FiberPool.new(5).map(1..40) { connection.select_value("select name from items") } }
    assert_equal ["default"] * 40, names
    assert_equal 0, Record.connection_pool.stat[:busy]
  end

  private

  OPEN = /the code that spawned this task has a transaction open on another connection/
  NOT_COMMITTED = /#{OPEN}, and has written/o

  def sharing(pool)
    return sharing_before_72(pool) { yield } if pool.respond_to?(:lock_thread=)

    begin
      pool.pin_connection!(true)
      yield
    ensure
      pool.unpin_connection!
    end
  end

  def sharing_before_72(pool)
    connection.begin_transaction(joinable: false, _lazy: false)
    pool.lock_thread = true
    yield
  ensure
    pool.lock_thread = false
    connection.rollback_transaction
  end

  def in_task(&block) = Heddle.run { Heddle.spawn(&block).value }

  def define_models
    record = Class.new(ActiveRecord::Base) { self.abstract_class = true }
    self.class.const_set(:Record, record)
    record.connects_to(shards: {default: {writing: :one, reading: :one}, second: {writing: :two, reading: :two}})
    self.class.const_set(:Item, Class.new(record) { self.table_name = "items" })
    self.class.const_set(:Current, Class.new(ActiveSupport::CurrentAttributes) { attribute :user })
  end

  def on(shard, &block) = Record.connected_to(shard: shard, role: :writing, &block)

  def set(&block)
    Current.user = "ann"
    Time.zone = "Tokyo"
    @logger.tagged("request 7") { on(:second, &block) }
  end

  def sees = [Item.pluck(:name), Current.user, Time.zone&.name, logged("said")]

  def logged(text)
    @log.truncate(0)
    @log.rewind
    @logger.info(text)
    @log.string.chomp
  end

  def connection
    pool = Record.connection_pool
    pool.respond_to?(:lease_connection) ? pool.lease_connection : pool.connection
  end

  def counted
    count = 0
    counter = ->(*, payload) { count += 1 unless payload[:cached] || payload[:name] == "SCHEMA" }
    ActiveSupport::Notifications.subscribed(counter, "sql.active_record") { yield }
    count
  end
end

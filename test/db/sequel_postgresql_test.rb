# frozen_string_literal: true

require "test_helper"
require "support/postgresql_server"
require "shared/sequel"

# Sequel's adapter for PostgreSQL on Heddle::DB.
class SequelPostgreSQLTest < Minitest::Test
  include PostgreSQLHelpers
  include SequelSuite
  include SequelServerSuite

  hard_deadline 60

  # The server answers the cancel.
  def goes_on? = true

  def url = postgresql.url.sub("postgresql:", "heddle-postgresql:")

  def slow = Sequel.function(:pg_sleep, SequelSuite::SECONDS)

  def upsert(dataset) = dataset.insert_conflict(target: :name, update: {number: Sequel[:excluded][:number]})

  def test_ways_to_connect
    uri = URI(url)
    options = {host: uri.host, port: uri.port, user: uri.user, password: uri.password, database: uri.path[1..]}
    [{adapter: "heddle", database_type: "postgresql", **options}, {adapter: :"heddle-postgresql", **options},
      {adapter: "heddle", database_type: :postgres, conn_str: postgresql.url}]
      .each { |way| Sequel.connect(**way, keep_reference: false) { |db| assert_equal 1, db.get(1) } }
    Sequel.connect(url.sub("postgresql", "postgres"), keep_reference: false) do |other|
      assert_equal [1, :"heddle-postgresql"], [other.get(1), other.adapter_scheme]
    end
    db = connect(application_name: "tested", search_path: "pg_catalog", client_min_messages: "error",
      driver_options: {parameters: {"work_mem" => "1MB"}})
    assert_equal %w[tested pg_catalog error 1MB],
      %w[application_name search_path client_min_messages work_mem].map { |name| db["show #{name}"].single_value }
    assert_raises(Sequel::DatabaseConnectionError) { connect(encoding: "LATIN1") }
  ensure
    db&.disconnect
  end

  def test_the_session_keeps_the_time_zone_of_the_server
    zone = Heddle::DB.connect(postgresql.url).then do |db|
      db.query_value("select reset_val from pg_settings where name = 'TimeZone'").tap { db.close }
    end
    other = connect(driver_options: {options: "-c TimeZone=Asia/Tokyo"})
    assert_equal "Asia/Tokyo", other["show timezone"].single_value
    assert_equal Time.utc(2024, 7, 1, 3), other.get(Sequel.lit("timestamptz '2024-07-01 12:00'"))
    refute_nil zone
  ensure
    other&.disconnect
  end

  def test_types_without_extensions_are_text_or_ruby
    values = @db[<<~SQL].first
      select 1::int2 i2, 2::bigint i8, 1.5::real f4, 'NaN'::float8 nan, '-Infinity'::float8 inf, 1.50::numeric n,
        true b, 'x'::text t, null::int nothing, '\\x00ff'::bytea y, date '2024-02-29' d, time '12:34:56.5' tm,
        array[1,2] a, int4range(1,3) r, '{"a": 1}'::jsonb j, '1 day'::interval iv, 'ab'::char(4) c, 7::oid o
    SQL
    assert_predicate values.delete(:nan), :nan?
    assert_equal "12:34:56.500000", values.delete(:tm).strftime("%T.%6N")
    assert_equal({i2: 1, i8: 2, f4: 1.5, inf: -Float::INFINITY, n: BigDecimal("1.5"), b: true, t: "x", nothing: nil,
      y: Sequel.blob("\x00\xff".b), d: Date.new(2024, 2, 29), a: "{1,2}", r: "[1,3)", j: '{"a": 1}', iv: "1 day",
      c: "ab  ", o: 7}, values)
    assert_instance_of Sequel::SQL::Blob, values[:y]
    @db.run("set bytea_output = 'escape'")
    assert_equal "a\\\x00\xff".b, @db.get(Sequel.lit("'a\\\\\\000\\377'::bytea"))
  end

  def test_extensions_of_types
    @db.extension :pg_array, :pg_json, :pg_range, :pg_interval, :pg_inet, :pg_multirange
    @db.create_table!(:kept) do
      column :a, "integer[]"
      column :j, :jsonb
      column :r, :int4range
      column :t, "timestamptz[]"
      column :y, "bytea[]"
      column :i, :inet
    end
    time = Time.utc(2024, 2, 29, 1, 2, 3)
    row = {a: Sequel.pg_array([1, nil, 2], :integer), j: Sequel.pg_jsonb({"a" => [1, nil]}), r: Sequel.pg_range(1...5),
           t: Sequel.pg_array([time], :timestamptz), y: Sequel.pg_array([Sequel.blob("\x00\xff".b)], :bytea),
           i: IPAddr.new("10.0.0.1")}
    @db[:kept].insert(row)
    @db[:kept].call(:insert, row, row.keys.to_h { |key| [key, :"$#{key}"] })
    assert_equal 2, @db[:kept].all.each { |found|
      assert_equal [[1, nil, 2], {"a" => [1, nil]}, 1...5, [time], ["\x00\xff".b], IPAddr.new("10.0.0.1")],
        [found[:a].to_a, found[:j].to_h, found[:r].to_range, found[:t].to_a, found[:y].to_a, found[:i]]
    }.size
    Sequel.extension :pg_json_ops
    assert_equal 2, @db[:kept].where(Sequel.pg_jsonb_op(:j).has_key?("a")).count, "? is an operator"
    assert_equal 2, @db[:kept].where(Sequel.pg_jsonb_op(:j).has_key?(:$key)).call(:select, key: "a").size
  end

  def test_conversion_procs_of_the_program
    @db.add_conversion_proc(20) { |text| "number #{text}" }
    assert_equal ["number 7", 7], @db["select 7::bigint a, 7 b"].first.values
    @db.run("drop type if exists mood; create type mood as enum ('glad')")
    @db.add_named_conversion_proc(:mood, &:to_sym)
    assert_equal :glad, @db.get(Sequel.lit("'glad'::mood"))
  ensure
    @db.run("drop type if exists mood")
  end

  def test_infinite_dates_and_dates_before_christ
    assert_raises(Sequel::InvalidValue, ArgumentError) { @db.get(Sequel.lit("timestamp 'infinity'")) }
    db = connect(convert_infinite_timestamps: :float)
    assert_equal Float::INFINITY, db.get(Sequel.lit("timestamp 'infinity'"))
    assert_equal(-43, db.get(Sequel.lit("date '0044-03-15 BC'")).year)
    assert_equal(-43, db.get(Sequel.lit("timestamp '0044-03-15 BC'")).year)
  ensure
    db&.disconnect
  end

  # The extension asks for Sequel's adapter postgres by name.
  def test_all_values_bound
    @db.extension :pg_auto_parameterize
    log = StringIO.new
    @db.loggers << Logger.new(log)
    ds = items
    ds.insert(name: "a'", number: 1)
    assert_equal({id: 1, name: "a'", number: 1}, ds.where(name: "a'", number: [1, 2]).first)
    assert_match(/"name" = \$1.*; \["a'", "\{1,2\}"\]/, log.string)
  end

  # The server answers the COMMIT of a failed transaction with ROLLBACK, and no error.
  def test_a_commit_that_the_server_answers_with_a_rollback
    ds = items
    ds.insert(name: "a")
    [{}, {prepare: "heddle"}].each do |options|
      seen = []
      error = assert_raises(Sequel::DatabaseError) do
        @db.transaction(**options) do
          ds.insert(name: "b")
          %i[after_commit after_rollback].each { |hook| @db.send(hook) { seen << hook } unless options[:prepare] }
          seen << @db.rollback_checker
          assert_raises(Sequel::UniqueConstraintViolation) { ds.insert(name: "a") }
        end
      end
      assert_kind_of Heddle::DB::TransactionError, error.wrapped_exception
      assert_match(/rolled the transaction back/, error.message)
      assert seen.shift.call
      assert_equal options[:prepare] ? [] : [:after_rollback], seen
    end
    @db.transaction do
      ds.insert(name: "c")
      assert_raises(Sequel::UniqueConstraintViolation) { @db.transaction(savepoint: true) { ds.insert(name: "a") } }
    end
    @db.transaction(rollback: :always) { assert_raises(Sequel::DatabaseError) { ds.insert(name: "a") } }
    assert_equal %w[a c], ds.select_order_map(:name)
  end

  def test_cursors
    ds = items
    ds.import([:name], Array.new(5) { |n| ["n#{n}"] })
    seen = ds.order(:id).use_cursor(rows_per_fetch: 1).map do |row|
      ds.where_current_of.update(number: row[:id])
      row[:id]
    end
    assert_equal [seen, seen], [[1, 2, 3, 4, 5], ds.order(:id).select_map(:number)]
    held = ds.order(:id).use_cursor(rows_per_fetch: 2, hold: true, cursor_name: "outer")
    assert_equal 25, held.flat_map { |_| ds.use_cursor(rows_per_fetch: 3).map(:id) }.size
    assert_raises(IndexError) { held.each { raise IndexError } }
    assert_raises(Sequel::UniqueConstraintViolation) { ds.use_cursor.each { ds.insert(name: "n1") } }
    assert_equal 5, ds.count
    refute @db.in_transaction?
  end

  def test_copy
    @db.create_table!(:kept) do
      Integer :x
      String :y
    end
    @db.copy_into(:kept, data: ["1\ta\n2", "\t\\N\n"])
    pieces = ["3,\"b,c\"\n", nil]
    @db.copy_into(:kept, format: :csv, columns: %i[x y]) { pieces.shift }
    assert_equal "1\ta\n2\t\\N\n3\tb,c\n", @db.copy_table(:kept)
    rows = []
    @db.copy_table(@db[:kept].where { x > 1 }.order(Sequel.desc(:x)), format: :csv) { |row| rows << row }
    assert_equal ["3,\"b,c\"\n", "2,\n"], rows
    assert_raises(IndexError) { @db.copy_into(:kept) { raise IndexError } }
    assert_raises(Sequel::DatabaseError) { @db.copy_into(:kept, data: "x\ty\n") }
    assert_raises(Sequel::Error) { @db.copy_into(:kept) }
    assert_equal 3, @db[:kept].count
    assert_raises(Sequel::DatabaseDisconnectError) { @db.copy_table(:kept) { break } }
    error = assert_raises(Sequel::DatabaseDisconnectError) { @db.copy_table(:kept) { raise IndexError } }
    assert_instance_of IndexError, error.wrapped_exception
    assert_equal 3, @db[:kept].count
    assert_equal 3, Heddle.run { @db.copy_table(:kept).lines.size }
  end

  def test_notifications_reach_a_task_while_others_run
    Heddle.run do
      heard = Queue.new
      listening = Queue.new
      task = Heddle.spawn do
        @db.listen([:jobs, "Other"], after_listen: ->(_) { listening << true }, loop: true, timeout: AT_ONCE) do |*all|
          heard << all
          break if heard.size == 2
        end
      end
      listening.pop
      @db.notify(:jobs, payload: "7")
      @db.notify("Other")
      task.value
      assert_equal [["jobs", Integer, "7"], ["Other", Integer, ""]],
        Array.new(2) { heard.pop.then { |channel, process_id, payload| [channel, process_id.class, payload] } }
    end
    assert_nil @db.listen(:jobs, timeout: 0.01)
    assert_equal "jobs", @db.listen(:jobs, after_listen: ->(_) { @db.notify(:jobs) }, timeout: -> { AT_ONCE })
    rounds = 0
    @db.listen(:jobs, timeout: 0.01, loop: ->(_) { throw :stop if (rounds += 1) == 2 }) { flunk }
    assert_equal 2, rounds
    assert_raises(Sequel::Error) { @db.listen(:jobs, loop: true) }
  end

  def test_notices
    heard = []
    db = connect(notice_receiver: ->(notice) { heard << notice.message })
    db.run("do $$ begin raise warning 'careful'; end $$")
    assert_equal ["careful"], heard
  ensure
    db&.disconnect
  end

  def test_details_of_an_error
    items.insert(name: "a")
    error = assert_raises(Sequel::UniqueConstraintViolation) { @db[:items].insert(name: "a") }
    info = @db.error_info(error)
    assert_equal ["public", "items", "items_name_key", "23505", "ERROR", "Key (name)=(a) already exists."],
      info.values_at(:schema, :table, :constraint, :sql_state, :severity, :message_detail)
    error = assert_raises(Sequel::DatabaseError) { @db["select '?', wrong"].all }
    assert_equal 13, @db.error_info(error)[:statement_position]
    @db.run("create table kept2 (x int, exclude (x with =))")
    @db[:kept2].insert(x: 1)
    assert_raises(Sequel::Postgres::ExclusionConstraintViolation) { @db[:kept2].insert(x: 1) }
  ensure
    @db.drop_table?(:kept2)
  end

  # With standard_conforming_strings off, a backslash before a quote would not end the string.
  def test_strings_where_backslashes_are_special
    text = "\\' or 1=1 -- \\"
    db = connect(force_standard_strings: false, driver_options: {options: "-c standard_conforming_strings=off " \
      "-c escape_string_warning=off"})
    [@db, db].each do |each|
      assert_equal [text, "?"], [each.get(Sequel.cast(text, String)), each.get(Sequel.cast("?", String))]
      assert_equal "\\\x00'".b, each.get(Sequel.cast(Sequel.blob("\\\x00'".b), File))
    end
  ensure
    db&.disconnect
  end

  def test_locks_and_conflicts
    items.import([:name], [["a"], ["b"]])
    other = connect
    @db.transaction do
      @db[:items].where(id: 1).update(number: 1)
      assert_raises(Sequel::DatabaseLockTimeout) { other[:items].where(id: 1).for_update.nowait.first }
    end
    assert_raises(Sequel::SerializationFailure) do
      @db.transaction(isolation: :repeatable) do
        @db[:items].count
        other[:items].where(id: 1).update(number: 5)
        @db[:items].where(id: 1).update(number: 6)
      end
    end
  ensure
    other&.disconnect
  end

  def test_procedures
    @db.run("create or replace procedure twice(inout n int) language plpgsql as 'begin n := 2 * n; end'")
    assert_equal({n: 14}, @db.call_procedure(:twice, 7))
  ensure
    @db.run("drop procedure if exists twice")
  end

  # Another session changes a table: a statement that is kept prepared gives the new columns.
  def test_a_prepared_statement_of_a_changed_table
    items.insert(name: "a")
    first = @db[:items].prepare(:first, :any)
    assert_equal %i[id name number], first.call.keys
    other = connect
    other.alter_table(:items) { add_column :more, Integer }
    assert_equal %i[id name number more], first.call.keys
  ensure
    other&.disconnect
  end

  private

  def ends(db, other)
    id = db.get(Sequel.function(:pg_backend_pid))
    -> { other.get(Sequel.function(:pg_terminate_backend, id)) }
  end
end

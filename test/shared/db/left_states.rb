# frozen_string_literal: true

require "shared/db/interrupts"

# Callers of a pool leave every kind of state behind that a session can have, by every way to run a statement, among
# interrupts. The callers between them must see none of it, and what they write must be there at the end. See
# DatabaseInterrupts.
#
# A test has #address, #pools, #states, see STATES of the databases in left_states_test.rb, and #prepare_states.
module DatabaseLeftStates
  include DatabaseInterrupts

  Left = Class.new(StandardError)
  SHARES = {look: 0.5, write: 0.2}.freeze

  # @param kind [Symbol] what a failure names
  # @param leaves [Array<String>] texts, each of which leaves it
  # @param seen [String] an expression whose value tells whether it is there, and does not change the session
  State = Struct.new(:kind, :leaves, :seen)

  def setup
    @written = Thread::Queue.new
    super
  end

  def test_nobody_sees_what_another_has_left
    @expected = fresh { |db| db.query_row(look_sql) }
    among_interrupts do
      job(@random) until @counts.values_at(:looked, :left, :wrote).min > 0 # on a machine with much else to do
      there = fresh { |db| db.query_column("select n from written") }.tally
      written = Array.new(@written.size) { @written.pop }
      assert_empty written.reject { |n| there[n] == 1 }, context
      assert_empty states.map(&:kind) - @counts.keys, context if LONG
    end
  end

  private

  def prepare_database
    fresh do |db|
      db.query("drop table if exists written")
      db.query("create table written (n int)")
      prepare_states(db)
    end
  end

  def fresh
    db = Heddle::DB.connect(address, timeout: stretched(30))
    yield db
  ensure
    db&.close
  end

  def look_sql = @look_sql ||= "select #{states.filter_map(&:seen).uniq.join(", ")}".freeze

  def job(random)
    pool = @pools.sample(random: random)
    limited((random.rand < 0.7) ? 20 : 0.0005 + random.rand**2 * 0.02) do
      case random.rand
      when ...SHARES[:look] then look(pool)
      when ...SHARES.values.sum then write(pool)
      else leave(pool, random)
      end
    end
  end

  # By the statement that does nothing else.
  def look(pool)
    found = pool.query_row(look_sql)
    different = states.filter_map(&:seen).uniq.zip(@expected, found).reject { |_, expected, value| expected == value }
    assert_empty different, context
    count(:looked)
  end

  # In a transaction that another has left it would be lost.
  def write(pool)
    n = number
    assert_equal 1, pool.exec("insert into written values (?)", n), context
    @written << n
    count(:wrote)
  end

  # The server may refuse each, for what was left before it.
  def leave(pool, random)
    pool.with do |db|
      states.sample(random.rand(1..4), random: random).each do |state|
        send(WAYS.sample(random: random), db, state.leaves.sample(random: random))
        count(state.kind)
      rescue Heddle::DB::ServerError, Heddle::DB::TransactionError
        count(:refused)
      end
      count(:left)
      raise Left if random.rand < 0.2
    end
  rescue Left
    nil
  end

  WAYS = %i[by_query by_cursor prepared in_a_pipeline in_a_transaction by_hand].freeze

  def by_query(db, sql) = db.query(sql)

  def by_cursor(db, sql) = db.each_row(sql, fetch: 1) { break }

  def prepared(db, sql) = db.prepare(sql).query

  def in_a_pipeline(db, sql) = db.pipeline { |pipeline| 2.times { pipeline.query(sql) } }

  def in_a_transaction(db, sql) = db.transaction { db.query(sql) }

  # The transaction stays open.
  def by_hand(db, sql)
    db.start_transaction
    db.query(sql)
  end
end

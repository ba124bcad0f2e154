# frozen_string_literal: true

require "shared/db/interrupts"

# Tasks and threads do random things to one database over pools and connections of their own, among interrupts, closes
# by others, and collections. No answer is another query's, no place of a pool is lost, no descriptor stays open, and a
# transaction happened exactly if its caller was told so. See DatabaseInterrupts.
#
# A test has #address, #pools (of the first one's pool the connections write), #endless_sql (a query that ends by an
# interrupt alone) and #rows (what another program reads from the table soak).
module DatabaseSoak
  include DatabaseInterrupts

  SECONDS = DatabaseInterrupts::SECONDS
  PLACES = DatabaseInterrupts::PLACES
  NUMBERS = 40

  def setup
    @said = {}
    super
  end

  def prepare_database
    db = Heddle::DB.connect(address)
    db.query("drop table if exists soak")
    db.query("drop table if exists numbers")
    db.query("create table soak (n int primary key)")
    db.query("create table numbers (n int primary key)")
    db.transaction { NUMBERS.times { |n| db.query("insert into numbers values (?)", n) } }
  ensure
    db&.close
  end

  def test_tasks_and_threads_among_interrupts
    among_interrupts do
      @pools.each do |pool|
        Heddle.run { Heddle::FiberPool.new(PLACES).map((0...PLACES).to_a) { |n| assert_equal n, number_of(pool, n) } }
      end
      check_after
      there = rows.to_h { |n| [n, true] }
      assert_empty there.keys.reject { |n| n.between?(1, @number) }, context
      assert_empty @said.select { |n, committed| committed != there.fetch(n, false) }, context
      assert_operator @counts.values_at(:answer, :committed, :interrupted).min, :>, 0, context
    end
  end

  private

  def check_after
  end

  # An error that nobody expects ends the task or thread, and the test.
  def job(random)
    pool = @pools.sample(random: random)
    case random.rand
    when ...0.3 then answered(pool, random.rand(NUMBERS))
    when ...0.302 then among_collections { answered(pool, random.rand(NUMBERS)) }
    when ...0.4 then endless(pool, random)
    when ...0.5 then a_cursor_that_is_left(pool, random.rand(NUMBERS / 2))
    when ...0.55 then prepared(pool, random.rand(NUMBERS))
    when ...0.65 then closed_by_another(random)
    else transaction(pool, random)
    end
  end

  def number_of(pool, n) = pool.query_value("select n from numbers where n = ?", n)

  # Its own answer, and no other's.
  def answered(pool, n)
    found = limited(20) { number_of(pool, n) }
    return if found == :interrupted

    assert_equal n, found, context
    count(:answer)
  end

  # A collection at every allocation takes seconds, for all tasks.
  def among_collections
    GC.start
    return yield unless LONG

    GC.compact if GC.respond_to?(:compact)
    GC.stress = true
    yield
  ensure
    GC.stress = false
  end

  def endless(pool, random)
    limited(0.001 + random.rand * 0.02) { flunk(pool.query(endless_sql).rows.inspect) }
  end

  def a_cursor_that_is_left(pool, from)
    limited(20) do
      pool.each_row("select n from numbers where n >= ? order by n", from, fetch: 3) do |(n)|
        assert_equal from, n, context
        from += 1
        break if n % 7 == 6
      end
      count(:cursor)
    end
  end

  def prepared(pool, n)
    limited(20) do
      pool.with do |db|
        statement = db.prepare("select n from numbers where n in (?, ?)")
        assert_equal [[n]], statement.query(n, -1).rows, context
        assert_equal [], statement.query(-1, -2).rows, context
        statement.close if n.odd?
      end
    end
  end

  # A connection of its own, which another thread closes in the middle.
  def closed_by_another(random)
    seconds = random.rand * 0.01
    db = nil
    closer = nil
    limited(20) do
      db = Heddle::DB.connect(address, timeout: stretched(20))
      closer = Thread.new { sleep(seconds) && db.close }
      loop { random.rand(2).zero? ? number_of(db, 1) : db.transaction { db.query("delete from soak where n < 0") } }
    end
    count(:closed)
  ensure
    db&.close
    closer&.join
  end

  # What a caller was told: true, false for a transaction that raised before its commit, nothing where it was
  # interrupted during the commit.
  def transaction(pool, random)
    n = number
    committing = false
    outcome = limited((random.rand < 0.5) ? 20 : 0.001 + random.rand**2 * 0.05) do
      pool.transaction do |db|
        inserts(db, n, random)
        committing = true
      end
      :committed
    rescue IndexError
      :rolled_back
    end
    @lock.synchronize { @said[n] = true } if outcome == :committed
    outcome = committing ? :unknown : :rolled_back if outcome == :interrupted
    count(outcome)
  ensure
    @said[n] = false if n && !committing
  end

  def inserts(db, n, random)
    db.exec("insert into soak values (?)", n)
    nested(db, -n) if random.rand < 0.3
    sleep(random.rand * 0.002) if random.rand < 0.2
    assert_equal n, db.query_value("select max(n) from soak where n = ?", n), context
    raise IndexError, "rolled back" if (n % 7).zero?
  end

  # What is rolled back to a savepoint is not there.
  def nested(db, n)
    db.transaction do
      db.exec("insert into soak values (?)", n)
      raise KeyError, "rolled back"
    end
  rescue KeyError
    assert_equal 0, db.query_value("select count(*) from soak where n = ?", n), context
  end
end

# frozen_string_literal: true

require "shared/db/interrupts"

# Transfers between accounts, in each way to run a transaction, among interrupts. Each transfer also writes a row that
# names it. At the end the accounts hold what these rows say, so no transfer was done by halves; a transfer of which the
# caller was told that it is committed is there once, one that failed is not there, and one whose commit was interrupted
# is there at most once. See DatabaseInterrupts.
#
# A test has #address and #pools; and #kill_one where the server can end a connection.
module DatabaseTransfers
  include DatabaseInterrupts

  ACCOUNTS = 12
  BALANCE = 1000
  INSERT = "insert into transfers values (?, ?, ?, ?)"
  CHANGE = "update accounts set balance = balance + ? where id = ?"
  SET = "update accounts set balance = ? where id = ?"
  ALL = "select number, source, target, amount from transfers"
  # A job's own.
  RolledBack = Class.new(StandardError)

  Transfer = Struct.new(:number, :from, :to, :amount) do
    # In the order of the accounts, so that transfers wait for each other instead of in a circle.
    def changes = [[-amount, from], [amount, to]].sort_by(&:last)

    # With the accounts in any order, the database finds circles.
    def shuffled(random) = changes.shuffle(random: random)
  end

  def setup
    @said = Thread::Queue.new # of [number, what the caller was told]
    super
  end

  def test_transfers_among_interrupts
    among_interrupts do
      job(@random) until @counts.values_at(:committed, :failed).min > 0 # on a machine with much else to do
      told = Array.new(@said.size) { @said.pop }.to_h
      rows, balances = plainly { |db| [db.query(ALL), db.query("select id, balance from accounts")].map(&:rows) }
      assert_equal ACCOUNTS * BALANCE, balances.sum(&:last), context
      assert_equal balances_by(rows), balances.to_h, context
      assert_empty wrong(told, rows.map(&:first).tally), context
    end
  end

  private

  def prepare_database
    plainly do |db|
      %w[accounts transfers].each { |name| db.query("drop table if exists #{name}") }
      db.query("create table accounts (id int primary key, balance int not null)")
      db.query("create table transfers (number int, source int, target int, amount int)") # no key: it may come twice
      db.transaction { ACCOUNTS.times { |id| db.query("insert into accounts values (?, ?)", id, BALANCE) } }
    end
  end

  # A connection without interrupts.
  def plainly
    db = Heddle::DB.connect(address, timeout: stretched(30))
    yield db
  ensure
    db&.close
  end

  def balances_by(rows)
    rows.each_with_object(Hash.new(0).merge((0...ACCOUNTS).to_h { |id| [id, BALANCE] })) do |(_, from, to, amount), all|
      all[from] -= amount
      all[to] += amount
    end
  end

  # Transfers that are not there as often as they should be.
  def wrong(told, there)
    (1..@number).reject do |number|
      times = there.fetch(number, 0)
      case told[number]
      when :committed then times == 1
      when :failed then times.zero?
      else times <= 1
      end
    end.map { |number| [number, told[number], there[number]] }
  end

  # What the caller was told: :unknown if an error came during the commit that is not the server's answer.
  def job(random)
    from, to = (0...ACCOUNTS).to_a.sample(2, random: random)
    transfer = Transfer.new(number, from, to, random.rand(1..50))
    committing = false
    done = false
    limit = (random.rand < 0.5) ? 20 : 0.0005 + random.rand**2 * 0.05
    limited(limit) do
      way = ways.sample(random: random)
      send(way, @pools.sample(random: random), transfer, random) { |begins| committing = begins }
      done = true
    rescue Heddle::DB::ServerError, Heddle::DB::TransactionError => error
      committing = false # the server has said no
      raise unless EXPECTED.any? { |expected| expected === error }
    rescue RolledBack
      committing = false
    end
  ensure
    tell(transfer.number, done, committing) if transfer
  end

  def tell(number, done, committing)
    outcome = committing ? :unknown : :failed
    outcome = :committed if done
    @said << [number, outcome]
    count(outcome)
  end

  # ---- the ways, each with a block that is told when the commit begins (true), and that none has begun (false)

  WAYS = %i[in_a_block with_retries read_and_set prepared late nested by_hand in_a_pipeline].freeze

  def ways = WAYS

  def in_a_block(pool, transfer, random)
    pool.transaction do |db|
      transfer.changes.each { |change| assert_equal 1, db.exec(CHANGE, *change), context }
      leave_sometimes(random)
      write(db, transfer)
      yield true
    end
  end

  # Again after conflicts alone: never after a commit that nobody knows of.
  def with_retries(pool, transfer, random)
    pool.transaction(isolation: isolations.sample(random: random), retry: 3) do |db|
      yield false
      transfer.shuffled(random).each { |change| db.exec(CHANGE, *change) }
      write(db, transfer)
      yield true
    end
  end

  def isolations = %i[read_committed repeatable_read serializable]

  # An answer to another query would be money.
  def read_and_set(pool, transfer, random)
    pool.transaction do |db|
      write(db, transfer)
      transfer.changes.each do |amount, id|
        balance = db.query_value("select balance from accounts where id = ?#{for_update}", id)
        sleep(random.rand * 0.001) if random.rand < 0.2
        db.exec(SET, balance + amount, id)
      end
      yield true
    end
  end

  def for_update = " for update"

  def prepared(pool, transfer, random)
    change = pool.prepare(CHANGE)
    pool.transaction do |db|
      transfer.changes.each { |values| change.exec(*values) }
      insert = db.prepare(INSERT)
      insert.exec(*transfer)
      insert.close if random.rand < 0.5
      yield true
    end
  end

  # The deadline has passed when the block ends: the commit is not sent, to those who need an answer.
  def late(pool, transfer, random)
    pool.transaction do |db|
      transfer.changes.each { |change| db.exec(CHANGE, *change) }
      write(db, transfer)
      yield true
      nil until Heddle.remaining.zero? || Heddle.remaining > 0.1
      yield false if Heddle.remaining.zero? && refuses_late?
      leave_sometimes(random)
    end
  end

  def refuses_late? = true

  # What is rolled back to a savepoint is not there.
  def nested(pool, transfer, random)
    pool.transaction do |db|
      transfer.changes.each { |change| db.exec(CHANGE, *change) }
      wrong_one(db, transfer)
      db.transaction { write(db, transfer) }
      leave_sometimes(random)
      yield true
    end
  end

  def wrong_one(db, transfer)
    db.transaction do
      db.exec(CHANGE, 1_000_000, transfer.to)
      write(db, transfer)
      raise KeyError
    end
  rescue KeyError
    nil
  end

  def by_hand(pool, transfer, random)
    pool.with do |db|
      db.start_transaction
      transfer.changes.each { |change| db.exec(CHANGE, *change) }
      write(db, transfer)
      leave_sometimes(random)
      next db.rollback && raise(RolledBack) if random.rand < 0.2

      yield true
      db.commit
    end
  end

  # Nobody reads most of the results.
  def in_a_pipeline(pool, transfer, random)
    pool.transaction do |db|
      db.pipeline do |pipeline|
        transfer.changes.each { |change| pipeline.query(CHANGE, *change) }
        pipeline.query(INSERT, *transfer).then { |future| future.value if random.rand < 0.3 }
      end
      yield true
    end
  end

  def write(db, transfer) = assert_equal(1, db.exec(INSERT, *transfer), context)

  def leave_sometimes(random)
    raise RolledBack if random.rand < 0.1
  end
end

# frozen_string_literal: true

# A pool of connections to a server of a simulated world (see simulated_database.rb), whose users are cancelled, run out
# of time and lose their server at any moment. A subclass has the URL of the pool, and may have more OPERATIONS.
class PoolModel
  include TestHelpers

  DB = Heddle::DB
  SIZE = 3
  USERS = 10
  OURS = Class.new(StandardError)
  FAILURES = [OURS, DB::Error, Heddle::DeadlineExceeded].freeze
  INTERRUPTS = [Heddle::DeadlineExceeded, Heddle::Cancellation].freeze
  # What users do.
  OPERATIONS = %i[echo echo_in_time insert transaction transaction pipeline rows setting open_transaction].freeze
  PARTS = %i[part careless_part hasty_part joined_part nested_part].freeze
  INSERT = "insert into t values (?)"
  # A setting of the session.
  SET = "set s = '%s'"
  SHOW = "show s"

  # @param server [SimulatedDatabase]
  # @param port [Integer] of the server
  def initialize(world, server, port, **link)
    @world, @server, @port, @link = world, server, port, link
    @users = @texts = 0
    @fates = {} # of texts: :stored, :absent, or :unknown
    @attempts = []
    @interrupted = {} # users
  end

  # @return [Hash{Symbol => Integer}] how the users ended
  def run
    before = descriptor_count
    @world.host("db.example") { |host| host.tcp(@port) { |socket| @server.serve(socket) } }
    @pool = DB::Pool.new(self.class::URL, size: SIZE, connect_timeout: 10,
      timeout: one_of([nil, draw(0.5..5.0)]), statement_cache: one_of(%i[always never transaction]), **pool_options)
    @world.link("db.example", **@link)
    ended = among_interrupts
    @world.link("db.example")
    @server.be_calm
    come_back
    @pool.close
    sleep 3600
    check_rows
    check_left(before) if @link[:stall].zero?
    ended
  end

  private

  def draw(...) = @world.draw(...)

  def one_of(list) = list.sample(random: @world.random)

  def among_interrupts
    @tasks = Array.new(self.class::USERS) { Heddle.spawn { turn } }
    interrupter = Heddle.spawn { loop { sleep(draw(0.0..3.0)) && one_of(@tasks).cancel } }
    @tasks.each(&:wait)
    interrupter.cancel
    @tasks.each { |task| raise task.error if task.status == :failed }
    @tasks.map { |task| (task.status == :cancelled) ? :cancelled : task.value }.tally
  end

  def turn
    sleep(draw(0.0..3.0))
    Heddle.deadline(draw(0.1..30.0)) { lent }
    one_of(@tasks).cancel if draw < 0.1 # one who has just been given the connection, perhaps
    :done
  rescue DB::QueryCanceled
    raise "somebody else's cancel stopped a statement"
  rescue *FAILURES => error
    (error.is_a?(OURS) ? :ours : error.class.name[/\w+\z/].to_sym)
  end

  def pool_options = {}

  def lent
    @pool.with { |db| use(db) }
  end

  def use(db)
    user = (@users += 1)
    echo(db, user)
    draw(1..3).times { send(one_of(self.class::OPERATIONS), db, user) }
  rescue *INTERRUPTS
    @interrupted[user] = true
    raise
  end

  def text(user) = "#{user}.#{@texts += 1}"

  def equal(expected, value)
    raise "#{value.inspect} was the answer for #{expected.inspect}" unless value == expected
  end

  # Texts that are stored together or not at all. `perhaps`: those of statements that were interrupted, and perhaps
  # never sent.
  class Attempt
    attr_reader :texts, :perhaps

    def initialize(fates)
      @fates = fates
      @texts, @perhaps = [], []
    end

    def add(text)
      @fates[text] = :unknown
      @texts << text
    end

    def doubt(text)
      @perhaps << @texts.delete(text)
    end

    # From now on the server may store the texts.
    def decide = @decided = true

    def stored = settle(:stored, @texts)

    def absent = settle(:absent, @texts + @perhaps)

    # An error of the server's means that it has stored nothing.
    def failed(error)
      absent if !@decided || error.is_a?(DB::ServerError) || error.is_a?(DB::TransactionError)
    end

    private

    def settle(fate, texts)
      texts.each { |text| @fates[text] = fate }
    end
  end

  def attempt(user, count = 0)
    attempt = Attempt.new(@fates)
    @attempts << attempt
    count.times { attempt.add(text(user)) }
    value = yield attempt
    attempt.stored
    value
  rescue Exception => error # standard:disable Lint/RescueException -- it is only looked at
    attempt.failed(error)
    raise
  end

  # ---- what users do

  def echo(db, user)
    text = text(user)
    equal(text, db.query_value("select ?", text))
  end

  # Its own deadline ends the query. If the connection stays open, it is as good as before.
  def echo_in_time(db, user)
    in_time(user) { echo(db, user) }
    echo(db, user) unless db.closed?
  end

  # @return [Boolean] whether the time was enough
  def in_time(user)
    Heddle.deadline(draw(0.01..0.5)) { yield }
    true
  rescue Heddle::DeadlineExceeded
    @interrupted[user] = true
    raise if Heddle.remaining.zero?

    false
  end

  def insert(db, user)
    attempt(user, 1) do |attempt|
      attempt.decide
      db.exec(INSERT, attempt.texts.first)
    end
  end

  def transaction(db, user)
    last = nil
    db.transaction(retry: draw(0..2)) do
      last&.absent
      last = Attempt.new(@fates).tap { |attempt| @attempts << attempt }
      draw(1..4).times { send(one_of(PARTS), db, user, last) }
      last.decide
    end
    last.stored
  rescue Exception => error # standard:disable Lint/RescueException -- it is only looked at
    last&.failed(error)
    raise
  end

  def part(db, user, attempt)
    attempt.add(text = text(user))
    db.exec(INSERT, text)
  end

  # The user goes on after an error or an interruption, behind which the transaction must not commit.
  def careless_part(db, user, attempt)
    part(db, user, attempt)
  rescue DB::ServerError
    nil
  end

  def hasty_part(db, user, attempt)
    attempt.add(text = text(user))
    in_time(user) { db.exec(INSERT, text) } || attempt.doubt(text)
  end

  def joined_part(_db, user, attempt)
    attempt.add(text = text(user))
    @pool.exec(INSERT, text)
  end

  def nested_part(db, user, attempt)
    inner = Attempt.new(@fates)
    db.transaction do
      part(db, user, inner)
      raise OURS if draw < 0.3
    end
    inner.texts.each { |text| attempt.add(text) }
  rescue OURS, DB::ServerError
    inner.absent
  rescue Exception # standard:disable Lint/RescueException -- the transaction ends, too
    inner.absent
    raise
  end

  def pipeline(db, user)
    attempts = Array.new(draw(1..6)) { Attempt.new(@fates) if draw < 0.5 }
    @attempts.concat(attempts.compact)
    futures = db.pipeline do |pipeline|
      attempts.map do |attempt|
        text = text(user)
        attempt&.add(text)
        attempt&.decide
        [attempt, text, pipeline.query(attempt ? INSERT : "select ?", text)]
      end
    end
    futures.each do |attempt, text, future|
      result = future.value
      attempt ? attempt.stored : equal([[text]], result.rows)
    rescue DB::ServerError
      raise unless attempt

      attempt.absent
    end
  end

  def rows(db, user)
    seen = []
    db.each_row("select n from many", fetch: draw(1..6)) do |row|
      seen << row
      break if draw < 0.05
    end
    equal(Array.new(seen.size) { |n| ["#{user}-#{n}"] }, seen)
  end

  def setting(db, user)
    db.exec(format(self.class::SET, text = text(user)))
    equal(text, db.query_value(self.class::SHOW))
  end

  # It is the pool's to end.
  def open_transaction(db, user)
    db.query("begin")
    attempt(user, 1) { |attempt| db.exec(INSERT, attempt.texts.first) && raise(OURS) }
  end

  # ---- the end

  # All places of the pool, at once.
  def come_back
    inside = 0
    together = false
    tasks = Array.new(SIZE) do
      Heddle.spawn do
        Heddle.deadline(5) do
          @pool.with do |db|
            echo(db, @users += 1)
            together = true if (inside += 1) == SIZE
            begin
              sleep(0.1) until together
            ensure
              inside -= 1
            end
          end
        end
      rescue DB::Error, Heddle::DeadlineExceeded
        retry # a connection that has stalled
      end
    end
    Heddle.deadline(600) { tasks.each(&:value) }
    equal({connections: SIZE, free: SIZE, waiting: 0}, @pool.stats)
  end

  def check_rows
    stored = @server.rows
    twice = @server.ran.merge(stored) { |_, *counts| counts.max }.select { |_, count| count > 1 }
    raise "ran more than once: #{twice}" unless twice.empty?

    wrong = @fates.reject { |text, fate| fate == :unknown || (fate == :stored) == stored.key?(text) }
    raise "in truth it is otherwise: #{wrong}" unless wrong.empty?

    halves = @attempts.reject { |attempt| whole?(attempt.texts, attempt.perhaps, stored) }
    raise "stored in part: #{halves}" unless halves.empty?

    hit = @server.cancelled - @interrupted.keys
    raise "stopped, and nobody had asked for that: users #{hit}" unless hit.empty?
  end

  def whole?(texts, perhaps, stored)
    there = texts.count { |text| stored.key?(text) }
    return true if there == texts.size

    there.zero? && (texts.empty? || perhaps.none? { |text| stored.key?(text) })
  end

  def check_left(before)
    raise "sessions are left: #{@server.sessions.keys}" unless @server.sessions.empty?

    # The GC may have closed some of an earlier world's.
    raise "#{descriptor_count - before} descriptors are left" if descriptor_count > before
  end
end

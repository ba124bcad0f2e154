# frozen_string_literal: true

# A database server of a simulated world: one table of texts, settings, and transactions with savepoints. A subclass
# speaks a protocol, and knows some dozen statements. A text that a client sends has the form "user.number": the user is
# whoever holds the connection, and says so in its first statement. The server notes how often it has run what it was
# asked, and raises if a session that is new to a user is not as a new session is.
class SimulatedDatabase
  MANY = 10 # rows of the table that only is read

  # @return [Hash{String => Integer}] committed texts, and how often
  attr_reader :rows
  # @return [Hash{String => Integer}] how often each text came to be inserted
  attr_reader :ran
  # @return [Array<Integer, nil>] the users whose statements were stopped by a cancel
  attr_reader :cancelled
  # @return [Hash{Integer => Session}] by process
  attr_reader :sessions
  # @return [Hash{Integer => Integer}] the process of each user's session
  attr_reader :users
  # @return [Heddle::Simulation::World]
  attr_reader :world

  # @param refusals [Float] the probability that a statement fails by a conflict
  # @param slow [Float] the probability that a statement takes its time
  # @param crashes [Float] the probability that the session ends in the place of an answer
  def initialize(world, refusals: 0.0, slow: 0.0, crashes: 0.0)
    @world, @refusals, @slow, @crashes = world, refusals, slow, crashes
    @rows, @ran = Hash.new(0), Hash.new(0)
    @cancelled, @sessions, @users = [], {}, {}
    @processes = 100
  end

  # From now on nothing goes wrong.
  def be_calm
    @refusals = @slow = @crashes = 0.0
  end

  # @return [Boolean] whether the session ends now
  def crash? = @world.draw < @crashes

  # @return [Boolean] whether a statement fails by a conflict
  def conflict? = @world.draw < @refusals

  # @return [Float] seconds that a statement takes
  def duration = (@world.draw < @slow) ? @world.draw(0.0..4.0) : 0

  def commit(texts)
    texts.each { |text| @rows[text] += 1 }
  end

  private

  # Runs the session that the block makes for a process.
  def open_session
    process = (@processes += 1)
    session = @sessions[process] = yield(process)
    session.run
  ensure
    @sessions.delete(process)&.leave
  end

  # What is undone if its transaction, or the part behind a savepoint, is.
  Level = Struct.new(:name, :texts, :settings, :notifications)
  private_constant :Level

  # A client's session. A subclass has `left`, which says what the next user would see, and `stopped`, the error of a
  # statement that a cancel has stopped.
  class Session
    # An error for the client.
    class Refused < StandardError
      attr_reader :state

      def initialize(state, message)
        super(message)
        @state = state
      end
    end

    def initialize(server, process)
      @server, @process = server, process
      @settings = {}
      @levels = [] # of the explicit transaction
    end

    # The client has gone, or the server.
    def leave
      @gone = true
      stop
    end

    # What a cancel does: only a running statement is stopped.
    def stop
      @stopped&.push(true)
    end

    private

    # The user of the session. The first statement of each begins in a clean session.
    def identify(text)
      return unless text

      user = text.to_i
      return if user == @user

      first = @server.users[user]
      raise "user #{user} came to session #{@process} and to #{first}" if first

      @server.users[@user = user] = @process
      dirty = left.select { |_, there| there }.keys
      raise "user #{user} got a session with #{dirty.join(", ")} of another" unless dirty.empty?
    end

    def take_time
      seconds = @server.duration
      return if seconds.zero?

      @stopped = Thread::Queue.new
      begin
        Heddle.deadline(seconds) { @stopped.pop }
      rescue Heddle::DeadlineExceeded
        return
      ensure
        @stopped = nil
      end
      raise EOFError if @gone

      @server.cancelled << @user
      raise stopped
    end

    def insert(text)
      @server.ran[text] += 1
      take_time
      write([text])
      [[], "INSERT 0 1"]
    end

    def level(name) = Level.new(name, [], @settings.dup, [])

    def release(name)
      at = place_of(name)
      done = @levels.slice!(at..)
      @levels.last.texts.concat(done.flat_map(&:texts))
      @levels.last.notifications.concat(done.flat_map(&:notifications))
    end

    def back_to(name)
      at = place_of(name)
      @settings = @levels[at].settings
      @levels.slice!(at..)
      @levels << level(name)
    end

    def place_of(name)
      @levels.rindex { |level| level.name == name } or raise Refused.new("3B001", "savepoint does not exist")
    end
  end
end

# frozen_string_literal: true

require_relative "scripted_mysql"
require_relative "simulated_database"

# A MySQL server of a simulated world, with prepared statements, KILL QUERY and resets of the session; or MariaDB, which
# knows the statement that was prepared last.
class SimulatedMySQL < SimulatedDatabase
  # @param full [Float] the probability that the server has no room for another prepared statement
  def initialize(world, mariadb: false, full: 0.0, **options)
    super(world, **options)
    @mariadb, @full = mariadb, full
  end

  # @return [Boolean] whether it is MariaDB
  attr_reader :mariadb

  def be_calm
    super
    @full = 0.0
  end

  # @return [Boolean] whether a prepare is refused
  def full? = @world.draw < @full

  # For Host#tcp.
  def serve(socket)
    peer = ScriptedMySQL::Peer.new(socket)
    open_session { |process| Session.new(self, peer, process) }
  rescue EOFError
    nil # the client has gone
  end

  # A client's session.
  class Session < SimulatedDatabase::Session
    # Without the tracking of sessions, and with packets that end columns and rows.
    CAPABILITIES = ScriptedMySQL::CAPABILITIES & ~(1 << 23) & ~(1 << 24)
    IN_TRANSACTION = 1
    AUTOCOMMIT = 2
    TEXT = 0xfd
    STATES = {1213 => "40001", 1317 => "70100", 1243 => "HY000", 1305 => "42000", 1461 => "HY000"}.freeze
    LAST = 0xffffffff
    private_constant :CAPABILITIES, :IN_TRANSACTION, :AUTOCOMMIT, :TEXT, :STATES, :LAST

    # @return [Boolean] whether it waits for a request
    attr_reader :idle
    # @return [Integer] the client's
    attr_reader :port

    def initialize(server, peer, process)
      super(server, process)
      @peer, @port = peer, peer.socket.peeraddr[1]
      @statements = {}
      @prepared = 0
    end

    def run
      @peer.greet(thread: @process, capabilities: CAPABILITIES ^ (@server.mariadb ? 1 : 0),
        version: @server.mariadb ? "5.5.5-10.11.6-MariaDB" : "8.0.36")
      @peer.ok(@peer.response[:sequence] + 1)
      loop do
        @idle = true
        _, payload = @peer.read
        @idle = false
        break if payload.getbyte(0) == 1

        request(payload.getbyte(0), payload.byteslice(1..))
      end
    end

    private

    def left
      {transaction: !@levels.empty?, settings: !@settings.empty?}
    end

    def stopped = Refused.new(1317, "Query execution was interrupted")

    def write(texts)
      @levels.empty? ? @server.commit(texts) : @levels.last.texts.concat(texts)
    end

    # ---- packets

    def status = AUTOCOMMIT | (@levels.empty? ? 0 : IN_TRANSACTION)

    def done = @peer.write(1, ScriptedMySQL.ok(status: status))

    def end_of_part = "\xfe".b + [0, status].pack("vv")

    def column = ScriptedMySQL.column("c", TEXT, charset: 45)

    def counted(text) = [text.bytesize].pack("C") + text.b

    def request(command, payload)
      case command
      when 0x02, 0x0e then done # the database, a ping
      when 0x03 then answer(payload, []) { |values| values.map { |value| counted(value) }.join }
      when 0x16 then prepare(payload)
      when 0x17 then execute(payload)
      when 0x19 then close(payload.unpack1("V"))
      when 0x1a then statement(payload) && done
      when 0x1f then reset
      else raise "the server does not know the command #{command}"
      end
    rescue Refused => error
      @peer.error(1, error.state, STATES.fetch(error.state), error.message)
    end

    def answer(sql, values)
      rows = perform(sql.force_encoding(Encoding::UTF_8), values)
      raise EOFError if @server.crash? # without a word
      return done unless rows

      @peer.write(1, [1].pack("C"), column, end_of_part, *rows.map { |row| yield row }, end_of_part)
    end

    def prepare(sql)
      raise Refused.new(1461, "Can't create more statements") if @server.full?

      @last = id = (@prepared += 1)
      @statements[id] = sql
      parameters = sql.count("?")
      columns = reads?(sql) ? 1 : 0
      packets = ["\0".b + [id, columns, parameters, 0, 0].pack("VvvCv")]
      packets.concat([column] * parameters << end_of_part) if parameters > 0
      packets.concat([column] * columns << end_of_part) if columns > 0
      @peer.write(1, *packets)
    end

    def known(id) = (@server.mariadb && id == LAST) ? @last : id

    def statement(payload)
      @statements[known(payload.unpack1("V"))] or raise Refused.new(1243, "Unknown prepared statement handler")
    end

    def close(id)
      id = known(id)
      @statements.delete(id)
      @last = nil if id == @last
    end

    # All values are texts, and none is NULL.
    def execute(payload)
      sql = statement(payload)
      parameters = sql.count("?")
      values = (parameters > 0) ? texts(payload, 9 + (parameters + 7) / 8, parameters) : []
      answer(sql.dup, values) { |row| "\0\0".b + row.map { |value| counted(value) }.join }
    end

    def texts(payload, at, count)
      at += 1 + ((payload.getbyte(at) == 1) ? 2 * count : 0)
      Array.new(count) do
        length = payload.getbyte(at)
        text = payload.byteslice(at + 1, length).force_encoding(Encoding::UTF_8)
        at += 1 + length
        text
      end
    end

    def reset
      @levels.clear
      @settings.clear
      @statements.clear
      done
    end

    # ---- statements

    def reads?(sql) = sql.match?(/\Aselect/i)

    # @return [Array<Array<String>>, nil] rows
    def perform(sql, values)
      @server.world.note { "session #{@process}: #{sql} #{values.join(", ")}" }
      identify(values.grep(/\A\d+\.\d+\z/).first || sql[/'(\d+\.\d+)'/, 1])
      raise EOFError if @server.crash?

      conflict if sql.match?(/\A(insert|select id)/) && @server.conflict?
      rows = run_statement(sql, values)
      rows if reads?(sql)
    end

    # A deadlock ends the whole transaction.
    def conflict
      @levels.clear
      raise Refused.new(1213, "Deadlock found when trying to get lock; try restarting transaction")
    end

    def run_statement(sql, values)
      case sql
      when "select ?" then [take_time || values]
      when /\Aselect n from many/ then take_time || Array.new(SimulatedDatabase::MANY) { |n| ["#{@user}-#{n}"] }
      when /\Ainsert into t values \(\?\)/ then insert(values.first)
      when /\Aselect id from t/ then (take_time || @server.rows.key?(values.first)) ? [values] : []
      when /\Aset @s = '(.*)'/ then @settings["s"] = $1
      when /\Aselect @s/ then [[@settings.fetch("s", "")]]
      when /activate_all_roles/ then [["0"]]
      when /current_role/i then [["1"]]
      when "do 0" then nil
      when /\Aset /i then nil
      when /processlist/ then alive(sql)
      when /\Akill query (\d+)/i then @server.sessions[Integer($1)]&.stop
      else control(sql)
      end
    end

    # What the killer asks of the connection that it is to stop.
    def alive(sql)
      session = @server.sessions[Integer(sql[/theirs\.id = (\d+)/, 1])]
      (session && !session.idle && session.port == Integer(sql[/:(\d+)'/, 1])) ? [["1"]] : []
    end

    def control(sql)
      case sql
      when /\A(start transaction|begin)/i then @levels = [level(nil)]
      when /\Acommit/i then finish
      when /\Arollback to savepoint (\S+)/i then back_to($1)
      when /\Arollback/i then @levels.clear
      when /\Asavepoint (\S+)/i then @levels << level($1)
      when /\Arelease savepoint (\S+)/i then release($1)
      else raise "the server does not know #{sql}"
      end
    end

    def finish
      sleep(@server.duration) # nothing stops a commit
      @server.commit(@levels.flat_map(&:texts))
      @levels.clear
    end

    def place_of(name)
      @levels.rindex { |level| level.name == name } or raise Refused.new(1305, "SAVEPOINT does not exist")
    end
  end
end

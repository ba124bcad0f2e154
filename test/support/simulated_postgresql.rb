# frozen_string_literal: true

require_relative "scripted_postgresql"
require_relative "simulated_database"

# A PostgreSQL server of a simulated world, with listeners, COPY, cursors and cancels.
class SimulatedPostgreSQL < SimulatedDatabase
  # For Host#tcp.
  def serve(socket)
    peer = ScriptedPostgreSQL::Peer.new(socket)
    code, rest = peer.start
    return cancel(*rest.unpack("Na*")) if code == ScriptedPostgreSQL::CANCEL_REQUEST

    open_session { |process| Session.new(self, peer, process) }
  rescue EOFError
    nil # the client has gone
  end

  def notify(channel, text, process)
    @sessions.each_value { |session| session.notified(channel, text, process) }
  end

  private

  def cancel(process, secret)
    session = @sessions[process]
    session.stop if session && session.secret == secret
  end

  # A client's session.
  class Session < SimulatedDatabase::Session
    Crash = Class.new(StandardError)
    private_constant :Crash

    FAILED = "25P02"
    private_constant :FAILED

    # @return [String] what a cancel has to show
    attr_reader :secret

    def initialize(server, peer, process)
      super(server, process)
      @peer = peer
      @secret = [@server.world.draw(0..2**31)].pack("N")
      @out = +"".b
      @statements, @portals, @held = {}, {}, {}
      @channels, @notifications = {}, []
      @state = "I"
      @flight = [] # texts of a flight outside a transaction
    end

    def run
      @peer.raw(wire.welcome({"server_version" => "17.0"}, process: @process, secret: @secret))
      @idle = true
      while (type, payload = @peer.read)
        @idle = false
        break if type == "X"

        receive(type, payload)
      end
    rescue Crash
      @peer.raw(@out + wire.error("57P01", "terminating connection due to administrator command"))
    end

    def notified(channel, text, process)
      return if @gone || !@channels[channel]

      @notifications << wire.message("A", [process].pack("N") + "#{channel}\0#{text}\0")
      @peer.raw(take_notifications) if @idle && @state == "I"
    rescue SystemCallError, IOError
      nil # nobody listens any more
    end

    private

    def wire = ScriptedPostgreSQL

    def left
      {transaction: @state != "I", settings: !@settings.empty?, channels: !@channels.empty?, cursors: !@held.empty?,
       notifications: !@notifications.empty?}
    end

    def stopped = Refused.new("57014", "canceling statement due to user request")

    def write(texts)
      (@levels.last&.texts || @flight).concat(texts)
    end

    def take_notifications = @notifications.join.tap { @notifications.clear }

    def say(type, payload = "") = @out << wire.message(type, payload)

    # ---- messages

    def receive(type, payload)
      return if @skipping && type != "S"

      send(HANDLERS.fetch(type), payload)
    rescue Refused => error
      refuse(error)
      (type == "Q") ? ready : @skipping = true
    end

    HANDLERS = {"Q" => :simple, "P" => :parse, "B" => :bind, "D" => :describe, "E" => :execute, "C" => :close,
                "S" => :sync, "H" => :flush, "d" => :nothing, "c" => :nothing, "f" => :nothing}.freeze
    private_constant :HANDLERS

    # Of a COPY that has failed.
    def nothing(_payload) = nil

    def simple(payload)
      sql = payload.chomp("\0")
      return say("I") && ready if sql.empty?

      rows, tag, columns = perform(sql, [])
      say("T", fields(columns)) if columns
      rows.each { |row| data(row) }
      say("C", "#{tag}\0")
      ready
    end

    def parse(payload)
      name, sql, = payload.split("\0", 3)
      raise Refused.new("42P05", "prepared statement \"#{name}\" already exists") if name != "" && @statements[name]

      refuse_failed(sql)
      @statements[name] = sql
      say("1")
    end

    def bind(payload)
      portal, name, rest = payload.split("\0", 3)
      sql = @statements[name] or raise Refused.new("26000", "prepared statement \"#{name}\" does not exist")
      refuse_failed(sql)
      @portals[portal] = [sql, values(rest), nil]
      say("2")
    end

    def values(bytes)
      formats, = bytes.unpack("n")
      bytes = bytes.byteslice(2 + (2 * formats)..)
      count, rest = bytes.unpack("na*")
      Array.new(count) do
        length, rest = rest.unpack("l>a*")
        next if length < 0

        value, rest = rest.unpack("a#{length}a*")
        value.force_encoding(Encoding::UTF_8)
      end
    end

    def describe(payload)
      if payload[0] == "S"
        sql = @statements.fetch(payload[1..].chomp("\0"))
        say("t", [sql.scan(/\$\d/).size, *([25] * sql.scan(/\$\d/).size)].pack("nN*"))
      else
        sql, = @portals.fetch(payload[1..].chomp("\0"))
      end
      names = columns_of(sql)
      names ? say("T", fields(names)) : say("n")
    end

    def execute(payload)
      name, rest = payload.split("\0", 2)
      most = rest.unpack1("N")
      portal = @portals[name] or raise Refused.new("34000", "portal \"#{name}\" does not exist")
      rows, tag = portal[2] || perform(portal[0], portal[1])
      portal[2] = [rows, tag]
      (most.zero? ? rows.slice!(0..) : rows.shift(most)).each { |row| data(row) }
      (most.zero? || rows.empty?) ? say("C", "#{tag}\0") : say("s")
    end

    def close(payload)
      name = payload[1..].chomp("\0")
      if payload[0] == "S"
        @statements.delete(name)
      else
        [@portals, @held].each { |all| all.delete(name) }
      end
      say("3")
    end

    def flush(_payload)
      @peer.raw(@out)
      @out.clear
    end

    def sync(_payload)
      @skipping = false
      ready
    end

    def ready
      if @state == "I"
        @server.commit(@flight)
        @flight.clear
        @portals.clear
        @out << take_notifications
      end
      @out << wire.ready(@state)
      flush(nil)
      @idle = true
    end

    def refuse(error)
      @out << wire.error(error.state, error.message, severity: "ERROR")
      @state = "E" if @state == "T"
      @flight.clear
    end

    def fields(names)
      [names.size].pack("n") + names.map { |name| "#{name}\0".b + [0, 0, 25, -1, -1, 0].pack("NnNnNn") }.join
    end

    def data(row)
      say("D", [row.size].pack("n") + row.map { |value| [value.bytesize].pack("N") + value.b }.join)
    end

    # ---- statements

    ENDS = /\A(commit|rollback)/i
    READS = /\A(select|fetch|show)/i
    CONFLICTS = /\A(insert|select id|commit)/i
    private_constant :ENDS, :READS, :CONFLICTS

    def refuse_failed(sql)
      return if @state != "E" || sql.match?(ENDS)

      raise Refused.new(FAILED, "current transaction is aborted, commands ignored until end of transaction block")
    end

    def columns_of(sql) = sql.match?(READS) ? ["c"] : nil

    # @return [Array(Array<Array<String>>, String, Array<String>)] rows, the tag and the columns
    def perform(sql, values)
      @server.world.note { "session #{@process}: #{sql} #{values.join(", ")}" }
      refuse_failed(sql)
      identify(values.grep(/\A\d+\.\d+\z/).first || sql[/'(\d+\.\d+)'/, 1])
      raise Crash if @server.crash?

      conflict(sql) if sql.match?(CONFLICTS) && @server.conflict?
      rows, tag = run_statement(sql, values)
      raise EOFError if @server.crash? # without a word
      [rows, tag || "SELECT #{rows.size}", columns_of(sql)]
    end

    def conflict(sql)
      undo if sql.match?(/\Acommit/i)
      raise Refused.new("40001", "could not serialize access due to read/write dependencies among transactions")
    end

    def run_statement(sql, values)
      case sql
      when /\Aselect \$1\z/ then [[take_time || values]]
      when /\Aselect n from many/ then [take_time || Array.new(SimulatedDatabase::MANY) { |n| ["#{@user}-#{n}"] }]
      when /\Ainsert into t values \(\$1\)/ then insert(values.first)
      when /\Aselect id from t where id = \$1/ then [(take_time || @server.rows.key?(values.first)) ? [values] : []]
      when /\Aset s = '(.*)'/ then change { @settings["s"] = $1 } && [[], "SET"]
      when /\Ashow s/ then [[[@settings.fetch("s", "")]]]
      when /\Aselect pg_notify/ then notify(*values)
      when /pg_proc/ then [[]]
      when /\Alisten "(.*)"/i then change { @channels[$1] = true } && [[], "LISTEN"]
      when /\Aunlisten \*/i then @channels.clear && [[], "UNLISTEN"]
      when /\Aunlisten "(.*)"/i then @channels.delete($1) && [[], "UNLISTEN"]
      when /\Adiscard all/i then discard
      when /\Adeclare (\S+) .* hold for select n from many/i then declare($1)
      when /\Afetch (\d+) from (\S+)/i then [@held.fetch($2).shift(Integer($1))]
      when /\Acopy t .*from stdin/ then copy_in
      when /\Acopy .* to stdout/ then copy_out
      else control(sql)
      end
    end

    def change = yield || true

    def notify(channel, text)
      if @levels.empty?
        @server.world.start { @server.notify(channel, text, @process) }
      else
        @levels.last.notifications << [channel, text]
      end
      [[[""]]]
    end

    def declare(name)
      take_time
      @held[name] = Array.new(SimulatedDatabase::MANY) { |n| ["#{@user}-#{n}"] }
      [[], "DECLARE CURSOR"]
    end

    def discard
      raise Refused.new("25001", "DISCARD ALL cannot run inside a transaction block") unless @state == "I"

      [@settings, @statements, @held, @channels].each(&:clear)
      [[], "DISCARD ALL"]
    end

    # ---- COPY

    def copy_in
      @out << wire.message("G", [0, 1, 0].pack("Cnn"))
      flush(nil)
      data = +"".b
      loop do
        type, payload = @peer.read
        case type
        when "d" then data << payload
        when "c" then break
        when "f" then raise Refused.new("57014", "COPY from stdin failed: #{payload}")
        when "S", "H" then nil
        else raise "a COPY got a message #{type}"
        end
      end
      texts = data.split("\n")
      texts.each { |text| @server.ran[text] += 1 }
      take_time
      write(texts)
      [[], "COPY #{texts.size}"]
    end

    def copy_out
      say("H", [0, 1, 0].pack("Cnn"))
      SimulatedDatabase::MANY.times { |n| say("d", "#{@user}-#{n}\n") }
      flush(nil) # the rest comes later
      take_time
      SimulatedDatabase::MANY.times { |n| say("d", "#{@user}-#{SimulatedDatabase::MANY + n}\n") }
      say("c")
      [[], "COPY #{SimulatedDatabase::MANY * 2}"]
    end

    # ---- transactions

    def control(sql)
      case sql
      when /\Abegin/i then start
      when /\Acommit/i then finish
      when /\Arollback to savepoint (\S+)/i then back_to($1) && @state = "T"
      when /\Arollback/i then undo
      when /\Asavepoint (\S+)/i then @levels << level($1)
      when /\Arelease savepoint (\S+)/i then release($1)
      else raise "the server does not know #{sql}"
      end
      [[], tag_of(sql)]
    end

    def tag_of(sql)
      (sql.match?(/\Acommit/i) && @undone) ? "ROLLBACK" : sql[/\A\w+/].upcase
    end

    def start
      @levels = [level(nil)]
      @state = "T"
    end

    def finish
      @undone = @state == "E"
      return undo if @undone

      sleep(@server.duration) # nothing stops a commit
      @server.commit(@levels.flat_map(&:texts))
      said = @levels.flat_map(&:notifications)
      @server.world.start { said.each { |channel, text| @server.notify(channel, text, @process) } }
      @levels.clear
      @state = "I"
    end

    def undo
      @settings = @levels.first.settings unless @levels.empty?
      @levels.clear
      @state = "I"
    end
  end
end

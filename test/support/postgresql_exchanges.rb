# frozen_string_literal: true

require "support/scripted_postgresql"

# Exchanges of each kind with a {ScriptedPostgreSQL}, byte for byte, for tests that break them.
module PostgreSQLExchanges
  S = ScriptedPostgreSQL
  M = S.method(:message)

  class << self
    def column(name, type, format = 1) = "#{name}\0".b + [0, 0, type, -1, -1, format].pack("NnNnNn")

    def row(*values)
      fields = values.map { |value| value ? [value.bytesize].pack("N") + value.b : [-1].pack("N") }
      [values.size].pack("n") + fields.join
    end

    # @return what the block returns, or the state of the server's error
    def state
      yield
    rescue Heddle::DB::ServerError => error
      error.sql_state
    end
  end

  DESCRIPTION = M["T", [2].pack("n") + column("a", 23) + column("b", 25)]
  BOUND = M["1"] + M["2"] + DESCRIPTION
  ROWS = M["D", row([1].pack("N"), "eins")] + M["D", row([2].pack("N"), nil)]
  DONE = M["C", "SELECT 2\0"] + S.ready
  INSERTED = M["1"] + M["2"] + M["n"] + M["C", "INSERT 0 1\0"]
  BEGUN = M["C", "BEGIN\0"] + S.ready("T")
  COMMITTED = M["C", "COMMIT\0"] + S.ready
  COPY = ->(type) { M[type, [0, 2, 0, 0].pack("Cn3")] }
  COPY_BINARY = ->(type) { M[type, [1, 2, 1, 1].pack("Cn3")] }
  DESCRIBED = M["1"] + M["t", [0].pack("n")] + DESCRIPTION + S.ready
  PREPARED = M["1"] + M["t", [1, 23].pack("nN")] + DESCRIPTION
  # In a transaction.
  HAD = M["2"] + ROWS + M["C", "SELECT 2\0"] + S.ready("T")
  # What the look-up of an enum's type finds.
  ENUM = 99_999
  TYPE_COLUMNS = [26, 25, 25, 25, 25, 26, 1009].map { |type| column("t", type) }
  TYPE_FOUND = M["1"] + M["2"] + M["T", [7].pack("n") + TYPE_COLUMNS.join] +
    M["D", row([ENUM].pack("N"), "public", "color", "e", "enum_send", [0].pack("N"), [0, 0, 25].pack("N3"))] +
    M["C", "SELECT 1\0"] + S.ready
  LOGIN = S.welcome.freeze

  # How each operation is asked for, what it returns, and what the server answers to each request.
  KINDS = {
    query: [->(db) { db.query("select a, b from t where c = ?", 3).rows }, [[1, "eins"], [2, nil]],
      [BOUND + ROWS + DONE]],
    prepared: [->(db) { db.prepare("select a, b from t where c = ?").query(3).rows }, [[1, "eins"], [2, nil]],
      [PREPARED + S.ready, M["2"] + ROWS + DONE]],
    kept: [lambda do |db|
      db.transaction { Array.new(2) { db.query("select a, b from t where c = ?", 3).rows } }
    end, [[[1, "eins"], [2, nil]]] * 2, [BEGUN, PREPARED + HAD, HAD, COMMITTED]],
    lost: [->(db) { db.prepare("select a, b from t where c = ?").query(3).rows }, [[1, "eins"], [2, nil]],
      [PREPARED + S.ready, S.error("26000", "no statement", severity: "ERROR") + S.ready, PREPARED + S.ready,
        M["2"] + ROWS + DONE]],
    unknown_type: [->(db) { db.query_value("select c from t") }, "red",
      [M["1"] + M["2"] + M["T", [1].pack("n") + column("c", ENUM)] + M["D", row("red")] + M["C", "SELECT 1\0"] +
        S.ready, TYPE_FOUND]],
    empty: [->(db) { db.query("").rows? }, false, [M["1"] + M["2"] + M["n"] + M["I"] + S.ready]],
    several: [->(db) { db.query("select 1; select 2").following.affected_rows }, 2,
      [M["C", "INSERT 0 1\0"] + M["C", "INSERT 0 2\0"] + S.ready]],
    refusal: [->(db) { state { db.query("select 1") } }, "42601",
      [S.error("42601", "syntax", severity: "ERROR") + S.ready]],
    transaction: [->(db) { db.transaction { :value } }, :value, [BEGUN, COMMITTED]],
    cursor: [->(db) { db.transaction { db.each_row("select a, b from t", fetch: 1).to_a } }, [[1, "eins"], [2, nil]],
      [BEGUN, BOUND + M["D", row([1].pack("N"), "eins")] + M["s"] + S.ready("T"),
        M["D", row([2].pack("N"), nil)] + M["C", "SELECT 1\0"] + S.ready("T"), M["3"] + COMMITTED]],
    held_cursor: [->(db) { db.each_row("select a, b from t", fetch: 2).to_a }, [[1, "eins"], [2, nil]],
      [M["1"] + M["2"] + M["n"] + M["C", "DECLARE CURSOR\0"] + S.ready, BOUND + ROWS + M["C", "FETCH 2\0"] + S.ready,
        BOUND + M["C", "FETCH 0\0"] + S.ready]],
    pipeline: [lambda do |db|
      db.pipeline { |p| Array.new(2) { p.query("insert") } << p.query("nope") }
        .map { |future| state { future.value.affected_rows } }
    end, [1, 1, "42601"],
      [INSERTED + S.ready, INSERTED + S.ready, S.error("42601", "syntax", severity: "ERROR") + S.ready]],
    atomic: [lambda do |db|
      db.pipeline(atomic: true) { |p| Array.new(3) { p.query("insert") } }.map { |future| future.value.affected_rows }
    end, [1, 1, 1], [INSERTED * 3 + S.ready]],
    copy_out: [->(db) { [].tap { |rows| db.copy_out("copy t to stdout") { |row| rows << row } } },
      [%w[1 eins], ["2", nil]],
      [COPY["H"] + M["d", "1\tei"] + M["d", "ns\n2\t\\N\n"] + M["c"] + M["C", "COPY 2\0"] + S.ready]],
    copy_out_binary: [->(db) { [].tap { |rows| db.copy_out("copy t to stdout binary") { |row| rows << row } } },
      [[1, nil]],
      [DESCRIBED, COPY_BINARY["H"] + M["d", "PGCOPY\n\xff\r\n\0".b + [0, 0].pack("NN") + [2, 4, 1, -1].pack("nNNN")] +
        M["d", [-1].pack("n")] + M["c"] + M["C", "COPY 1\0"] + S.ready]],
    copy_in_binary: [->(db) { db.copy_in("copy t from stdin binary") { |copy| copy << [1, "eins"] } }, 1,
      [DESCRIBED, COPY_BINARY["G"], M["C", "COPY 1\0"] + S.ready]],
    copy_in: [->(db) { db.copy_in("copy t from stdin") { |copy| copy << [1, "eins"] } }, 1,
      [COPY["G"], M["C", "COPY 1\0"] + S.ready]],
    notification: [->(db) { db.listen("ch").wait_for_notification.payload }, "pay",
      [M["1"] + M["2"] + M["n"] + M["C", "LISTEN\0"] + S.ready + M["N", "SNOTICE\0VNOTICE\0C00000\0Mx\0\0"] +
        M["A", [9].pack("N") + "ch\0pay\0"]]]
  }.freeze

  # Reads what ends a request: also the end of COPY's data.
  def end_of_request(peer)
    loop { return if %w[S Q c f].include?(peer.read.first) }
  end

  def total(answers) = LOGIN.bytesize + answers.sum(&:bytesize)

  # Sends the first +count+ bytes of the log-in's answer and these answers, each when it is asked for.
  def answer_partly(peer, answers, count)
    [LOGIN, *answers].each_with_index do |bytes, index|
      end_of_request(peer) if index > 0
      peer.raw(bytes[0, count])
      count -= bytes.bytesize
      break if count < 0
    end
  end
end

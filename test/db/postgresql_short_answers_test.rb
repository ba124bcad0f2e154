# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_exchanges"

# Answers of a few bytes that take long to read: a client that has them all in its buffer never waits. Other tasks have
# their turn meanwhile, and a deadline is noticed; what would take time that grows with the square of the bytes, does
# not.
class PostgreSQLShortAnswersTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLExchanges

  mode :fiber
  hard_deadline 60

  LIMIT = 0.5 # seconds
  LATE = 1.5 # without the mends, each of these takes at least three times as long
  TURNS = 2
  CPU = 1 # seconds

  # @yield [db]
  def with_answer(answer, before: "")
    play = proc do |peer|
      peer.startup
      peer.raw(LOGIN)
      peer.raw(before)
      end_of_request(peer)
      peer.raw(answer)
      loop { peer.read }
    end
    S.play(play) do |server|
      db = Heddle::DB.connect(server.url, timeout: 60, kill_queries: false)
      yield db
    ensure
      db&.close
    end
  end

  # The answer does not come to an end before the deadline.
  def assert_turns(answer, &work)
    with_answer(answer) do |db|
      turns = late = 0
      Heddle.run do
        other = Heddle.spawn { loop { sleep(0.01).then { turns += 1 } } }
        start = monotonic
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(LIMIT) { work.call(db) } }
        late = monotonic - start - LIMIT
        other.cancel
      end
      assert_operator turns, :>=, TURNS, "no other task had a turn"
      assert_operator late, :<=, stretched(LATE), "the deadline was noticed too late"
    end
  end

  def cpu
    start = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    yield
    Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - start
  end

  def columns(*types) = M["T", [types.size].pack("n") + types.map { |type| PostgreSQLExchanges.column("c", type) }.join]

  def answer_of(types, *values) = M["1"] + M["2"] + columns(*types) + M["D", PostgreSQLExchanges.row(*values)] + DONE

  # ---- turns

  def test_numbers_of_many_digits
    count = 20_000
    number = [10, 1, 32_767, 0, 0, 9].pack("Nn5") # 9 and 131,068 zeros
    assert_turns(answer_of([1231], [1, 0, 1700, count, 1].pack("N5") + number * count)) { |db| db.query("select 1") }
  end

  def test_a_row_of_a_copy_in_many_pieces
    answer = M["H", [0, 1, 0].pack("Cnn")] + M["d", "x"] * 400_000
    assert_turns(answer) { |db| db.copy_out("copy t to stdout") { |row| row } }
  end

  def test_many_rows_in_one_piece_of_a_copy
    answer = M["H", [0, 1, 0].pack("Cnn")] + M["d", "\n" * (8 << 20)]
    assert_turns(answer) { |db| db.copy_out("copy t to stdout") { |row| row } }
  end

  # The server takes no rows of a COPY while it sends notices, and the client reads these meanwhile.
  def test_notices_that_came_while_rows_were_sent
    longest = all = 0
    notices = M["N", "SNOTICE\0VNOTICE\0C00000\0Mx\0Dx\0Hx\0Wx\0\0"] * 400_000
    play = proc do |peer|
      peer.startup
      peer.raw(LOGIN)
      end_of_request(peer)
      peer.raw(M["G", [0, 1, 0].pack("Cnn")])
      peer.socket.readpartial(1)
      peer.raw(notices)
      loop { break if peer.socket.readpartial(1 << 20).include?("f") }
      peer.raw(S.error("57014", "given up", severity: "ERROR") + S.ready)
      peer.socket.read
    end
    S.play(play) do |server|
      db = Heddle::DB.connect(server.url, timeout: 60, kill_queries: false)
      db.on_notice { |notice| notice }
      all = cpu do
        Heddle.run do
          other = Heddle.spawn { loop { longest = [longest, cpu { sleep(0.005) }].max } }
          catch(:done) do
            db.copy_in("copy t from stdin") { |copy| copy.write("x" * (16 << 20)).then { throw :done } }
          end
          other.cancel
        end
      end
    end
    assert_operator longest, :<, all / 3, "the longest time without a turn of another task, of #{all} s"
  end

  def test_rows_of_a_copy_in_one_piece
    lines = Array.new(1000) { |i| i.to_s }
    answer = M["H", [0, 1, 0].pack("Cnn")] + M["d", lines.join("\n") + "\nlast"] + M["d", " one\n"] + M["c"] +
      M["C", "COPY 1001\0"] + S.ready
    with_answer(answer) do |db|
      rows = []
      assert_equal 1001, db.copy_out("copy t to stdout") { |row| rows << row }
      assert_equal [*lines, "last one"].zip, rows
    end
  end

  # ---- squares

  def test_many_types_that_are_not_known
    types = Array.new(60_000) { |i| 100_000 + i }
    with_answer(answer_of(types, *[nil] * types.size)) do |db|
      spent = cpu { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(LIMIT) { db.query("select 1") } } }
      assert_operator spent, :<, 2 * CPU
    end
  end

  # Each form, byte by byte, and with what may stand at the end of a piece before its meaning is known.
  PIECES = {
    "copy t to stdout" => "x" * 150_000, "copy u to stdout" => "\\\n" * 75_000,
    "copy t to stdout csv" => "x" * 150_000, "copy u to stdout csv" => "\"#{"\n\"\"" * 50_000}\"",
    "copy t to stdout binary" => "PGCOPY\n\xff\r\n\0".b + [0, 0].pack("NN") + [32_767].pack("n") + ("\xff".b * 131_068)
  }.freeze

  def test_a_row_of_a_copy_in_pieces_of_one_byte
    PIECES.each do |sql, bytes|
      binary = sql.end_with?("binary") ? 1 : 0
      pieces = bytes.each_char.map { |byte| M["d", byte] }.join
      answer = M["H", [binary, 1, binary].pack("Cnn")] + pieces + (binary.zero? ? M["d", "\n"] : "") + M["c"] +
        M["C", "COPY 1\0"] + S.ready
      with_answer(answer) do |db|
        db.driver.textual = true # so that the columns are not asked for
        rows = []
        assert_operator cpu { db.copy_out(sql) { |row| rows << row } }, :<, CPU / 2.0, sql
        assert_equal (binary == 1) ? [32_767] : [1], rows.map(&:size), sql
      end
    end
  end

  def test_a_message_of_control_characters
    with_answer(S.error("42601", "\1" * 900_000, severity: "ERROR") + S.ready) do |db|
      error = nil
      assert_operator cpu { error = assert_raises(Heddle::DB::ServerError) { db.query("select 1") } }, :<, CPU / 4.0
      assert_equal "\\x01" * 900_000, error.message
    end
  end

  def test_a_message_of_many_megabytes
    with_answer(S.error("42601", "äö" * (1 << 22), severity: "ERROR") + S.ready) do |db|
      error = assert_raises(Heddle::DB::ServerError) { db.query("select 1") }
      assert_equal "äö" * (1 << 18) + "… (#{(1 << 24) - (1 << 20)} bytes more)", error.message
    end
  end

  def test_a_notice_of_many_fields
    notice = M["N", "VNOTICE\0Mfirst\0" + "Msecond\0x\0" * (1 << 20) + "\0"]
    with_answer(notice + S.row("x") + S.ready) do |db|
      texts = []
      db.on_notice { |found| texts << found.message }
      assert_operator cpu { db.query("select 1") }, :<, CPU
      assert_equal ["first"], texts
    end
  end

  def test_text_of_numbers_and_times
    {23 => "7" * 100_000, 701 => "7" * 100_000, 1184 => "2020-01-01 00:00:00.#{"1" * 100_000}",
     1700 => "7" * 200_000}.each do |type, text|
      answer = columns(type) + M["D", PostgreSQLExchanges.row(text)] + M["C", "SELECT 1\0"] * 2 + S.ready
      with_answer(answer) do |db|
        error = assert_raises(Heddle::DB::ProtocolError) { db.query("select 1; select 2") }
        assert_match(/malformed value/, error.message)
      end
    end
  end

  # ---- memory

  def test_large_notices_and_settings_are_not_kept
    with_answer(M["N", "VNOTICE\0M#{"x" * (1 << 20)}\0\0"] * 80 + S.row("x") + S.ready) do |db|
      count = 0
      db.on_notice { count += 1 }
      db.query("select 1")
      assert_operator count, :<=, 64
      assert_operator count, :>=, 60
    end
    with_answer(S.setting("a", "x" * 70_000) + S.row("x") + S.ready) do |db|
      assert_raises(Heddle::DB::ProtocolError) { db.query("select 1") }
    end
  end
end

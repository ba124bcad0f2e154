# frozen_string_literal: true

require "test_helper"
require "heddle"
require "heddle/net_http"
require "net/http"
require "zlib"
require "support/flooding_server"
require "support/scripted_mysql"
require "support/scripted_postgresql"

runs_on rubies: :ends, backends: :one, except: %i[portable debug], short: false

# Peers that always send more, so that their client never has to wait: only waits notice a deadline and let others
# run. Within bounded work the deadline is noticed, other tasks and threads have their turn, and the connection is
# closed.
class FloodsTest < Minitest::Test
  mode :fiber

  LIMITS = {task: 0.2, thread: 0.3}.freeze # seconds; a thread has its turn after 0.1 s
  LIMIT_OF_A_BUSY_MACHINE = 1 # second
  LATE = 1 # second
  PAUSE = 0.01 # of the task that must not be delayed
  ATTEMPTS = 3
  TURNS = {task: 2, thread: 1}.freeze # beside a thread that computes, others have their turn every 100 ms
  TURNS_OF_STOCK = 1 # 16 KiB of small chunks take 20 ms to process

  HEAD = "HTTP/1.1 200 OK\r\n"
  CHUNKED = "#{HEAD}Transfer-Encoding: chunked\r\n\r\n"

  CASES = {} # rubocop:disable Style/MutableConstant

  # @param steps [Array<Array>] what the server does first, see FloodingServer
  # @param repeated [String] what it sends then, again and again
  def self.flood(name, steps, repeated, with, &work)
    CASES[name] = [steps, repeated]
    %i[task thread].each do |mode|
      define_method(:"test_#{name}_in_a_#{mode}") { assert_bounded(name, mode) { |port| send(with, port, &work) } }
    end
  end

  # ---- HTTP

  asked = [[:request]]
  flood(:interim_answers, asked, "HTTP/1.1 102 Processing\r\n\r\n", :get)
  flood(:interim_answers_with_headers, asked, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", :get)
  flood(:chunks, [*asked, [:write, CHUNKED]], "1\r\nx\r\n", :get)
  flood(:chunks_to_a_block, [*asked, [:write, CHUNKED]], "1\r\nx\r\n", :pieces)
  flood(:large_chunks, [*asked, [:write, CHUNKED]], "10000\r\n#{"x" * 65_536}\r\n", :pieces)
  flood(:chunk_extensions, [*asked, [:write, CHUNKED]], "1;#{"a=b;" * 100}\r\nx\r\n", :get)
  flood(:trailers, [*asked, [:write, "#{CHUNKED}0\r\n"]], "A: b\r\n", :get)
  flood(:body_to_the_end, [*asked, [:write, "#{HEAD}\r\n"]], "x" * 4096, :pieces)
  flood(:body_of_a_length, [*asked, [:write, "#{HEAD}Content-Length: #{1 << 40}\r\n\r\n"]], "x" * 4096, :pieces)
  flood(:expected_interim_answers, asked, "HTTP/1.1 100 Continue\r\n\r\n", :post)

  bomb = Zlib::Deflate.new(9, 31)
  start = bomb.deflate("\0" * 1024, Zlib::FULL_FLUSH)
  flood(:compressed_zeros, [*asked, [:write, "#{HEAD}Content-Encoding: gzip\r\n\r\n".b + start]],
    bomb.deflate("\0" * (4 << 20), Zlib::FULL_FLUSH), :pieces)

  # ---- Heddle::Stream

  flood(:lines, [], "line\r\n", :stream) { |stream| loop { stream.gets } }
  flood(:bytes, [], "line\r\n", :stream) { |stream| loop { stream.getbyte } }
  flood(:small_reads, [], "line\r\n", :stream) { |stream| loop { stream.read(5) } }
  flood(:large_reads, [], "line\r\n", :stream) { |stream| loop { stream.read(1 << 20) } }
  flood(:parts, [], "line\r\n", :stream) { |stream| loop { stream.readpartial(1 << 16) } }
  flood(:reads_that_never_wait, [], "line\r\n", :stream) do |stream|
    loop { stream.read_nonblock(1 << 16, exception: false) }
  end
  flood(:skipped, [], "line\r\n", :stream) { |stream| stream.skip(1 << 40) }

  # ---- memcached

  greeted = [[:line], [:write, "VERSION 1.6.38\r\n"], [:line]]
  flood(:statistics, greeted, "STAT a b\r\n", :cache, &:stats)
  flood(:errors_of_many_keys, greeted, "SERVER_ERROR out of memory\r\n", :cache) { |cache| cache.get_multi("a", "b") }

  # ---- MySQL

  server = ScriptedMySQL
  column = server.column("a", 253)
  in_turn = ->(first, payload) { server.packets(first, *[payload] * 256) }
  greeting = [[:write, server.packets(0, server.greeting)], [:packet]]
  welcome = [*greeting, [:write, server.packets(2, server.ok)], [:packet], [:write, server.packets(1, server.ok)],
    [:packet]]
  prepared = [*welcome, [:write, server.packets(1, server.prepared(1), column)], [:packet]]
  flood(:rows, [*prepared, [:write, server.packets(1, "\x01", column)]], in_turn.call(3, "\0\0\x01x"), :database)
  flood(:results, prepared, in_turn.call(1, server.ok(status: 10)), :database)

  # ---- PostgreSQL

  server = ScriptedPostgreSQL
  message = server.method(:message)
  asked = [[:any], [:write, server.welcome], [:any]]
  described = [*asked, [:write, message["1"] + message["2"] + message["T", [0].pack("n")]]]
  flood(:rows_without_columns, described, message["D", "\0\0"], :postgresql)
  flood(:notices, asked, message["N", "VNOTICE\0Mx\0\0"], :postgresql)
  flood(:notifications, asked, message["A", [1].pack("N") + "a\0b\0"], :postgresql)
  flood(:settings, asked, server.setting("a", "b"), :postgresql)
  flood(:empty_queries, asked, message["I"], :postgresql)
  flood(:server_errors, asked, server.error("42601", "x", severity: "ERROR"), :postgresql)
  flood(:closes, asked, message["3"], :postgresql)
  flood(:copied_lines, [*asked, [:write, message["H", [0, 1, 0].pack("Cnn")]]], message["d", "x\n"], :copied)
  flood(:copied_pieces, [*asked, [:write, message["H", [0, 1, 0].pack("Cnn")]]], message["d", "x"], :copied)

  # Ruby's own Net::HTTP reads without waiting as long as there is data, and calls no hook for that.
  {interim_answers: :get, chunks: :get, chunks_to_a_block: :pieces, trailers: :get,
   body_to_the_end: :pieces}.each do |name, with|
    define_method(:"test_#{name}_of_stock_in_a_task") do
      Heddle::NetHTTP.disable
      assert_bounded(name, :task, least: TURNS_OF_STOCK) { |port| send(with, port) }
    ensure
      Heddle::NetHTTP.enable
    end
  end

  # The server answers each login with a switch to another method.
  def test_endless_requests_for_another_login_method
    switch = "\xfemysql_native_password\0".b + "#{ScriptedMySQL::SCRAMBLE}\0"
    answers = (0..127).map { |i| ScriptedMySQL.packets(2 + 2 * i, switch) }.join
    server = FloodingServer.new([[:write, ScriptedMySQL.packets(0, ScriptedMySQL.greeting)], [:packet]], answers)
    error = assert_raises(Heddle::DB::LoginFailed) { Heddle.deadline(10) { database(server.port) } }
    assert_match(/keeps asking/, error.message)
    assert server.left?
  ensure
    server&.close
  end

  # Neither of them waits.
  def test_a_reader_of_an_endless_reply
    listener = TCPServer.new("127.0.0.1", 0)
    pid = fork do
      loop do
        socket = listener.accept
        buffer = +""
        loop { socket.readpartial(1 << 20, buffer) }
      rescue SystemCallError, IOError
        nil # the next one is measured again
      end
    ensure
      exit!(0)
    end
    assert_ends(:task) do
      stream = Heddle::Stream.connect("127.0.0.1", listener.addr[1])
      loop { stream.write("x" * 4096) && stream.flush }
    ensure
      stream&.close
    end
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
    listener&.close
  end

  private

  def assert_bounded(name, mode, least: TURNS.fetch(mode))
    steps, repeated = CASES.fetch(name)
    server = FloodingServer.new(steps, repeated)
    left = nil
    assert_ends(mode, least, -> { left = server.left? }) { yield server.port }
    assert left, "the connection was not closed"
  ensure
    server&.close
  end

  # Measured again, for longer, where the machine was busy: the deadline may pass before there is a connection.
  def assert_ends(mode, least = TURNS.fetch(mode), left = -> { true }, &work)
    turns = late = 0
    [LIMITS.fetch(mode), *[LIMIT_OF_A_BUSY_MACHINE] * (ATTEMPTS - 1)].each do |limit|
      turns = 0
      start = monotonic
      beside(mode, -> { turns += 1 }) { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(limit, &work) } }
      late = monotonic - start - limit
      break if late <= stretched(LATE) && turns >= least && left.call
    end
    assert_operator late, :<=, stretched(LATE), "the deadline was noticed #{late.round(3)} s late"
    assert_operator turns, :>=, least, "no other task or thread had a turn"
  end

  def beside(mode, turn, &work)
    other = -> { loop { sleep(PAUSE) && turn.call } }
    (mode == :task) ? beside_a_task(other, &work) : beside_a_thread(other, &work)
  end

  def beside_a_task(other)
    Heddle.run do
      other = Heddle.spawn(&other)
      yield
      other.cancel
    end
  end

  def beside_a_thread(other)
    other = Thread.new(&other)
    yield
  ensure
    other.kill.join
  end

  def get(port)
    Net::HTTP.get_response(URI("http://127.0.0.1:#{port}/"))
  end

  def post(port)
    Net::HTTP.start("127.0.0.1", port) do |http|
      http.continue_timeout = 5
      http.request(Net::HTTP::Post.new("/", "Expect" => "100-continue"), "body")
    end
  end

  def pieces(port)
    Net::HTTP.start("127.0.0.1", port) do |http|
      http.request(Net::HTTP::Get.new("/")) { |response| response.read_body { |piece| piece.bytesize } }
    end
  end

  def stream(port)
    stream = Heddle::Stream.connect("127.0.0.1", port)
    yield stream
  ensure
    assert_predicate stream, :closed? if stream && $!.is_a?(Heddle::DeadlineExceeded)
    stream&.close
  end

  def cache(port)
    cache = Heddle::Memcached.new("127.0.0.1:#{port}", timeout: 60)
    yield cache
  ensure
    cache&.close
  end

  def postgresql(port)
    connect_postgresql(port).on_notice { |notice| notice }.query("select 1")
  end

  def copied(port)
    connect_postgresql(port).copy_out("copy t to stdout") { |row| row }
  end

  def connect_postgresql(port)
    Heddle::DB.connect("postgresql://me:secret@127.0.0.1:#{port}/base", sslmode: "disable", timeout: 60)
  end

  def database(port)
    Heddle::DB.connect("mysql://me:secret@127.0.0.1:#{port}/base", timeout: 60).query("select 1")
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/scripted_http_server"
require "heddle/net_http"

runs_on rubies: :ends

# What a reply may have at most, and how a body is framed, is for the program's own version of Net::HTTP to say. Only
# a version without limits gets one: that of the newer ones. Each reply is read by stock and by accelerated Net::HTTP,
# in one piece and byte by byte, in threads and in tasks: the responses, the errors and what is left unread must not
# differ.
class NetHTTPLimitsTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :thread

  HAS_LIMITS = Net::HTTPResponse.respond_to?(:read_line)
  LIMIT = HAS_LIMITS ? Net::HTTPResponse::MAX_RESPONSE_HEADER_LENGTH : 1 << 20
  PAUSE = 0.0002 # seconds between two bytes, so that they are likely to arrive one by one
  SINGLE = 60 # so many bytes at the end of a reply come one by one
  REST = "0\r\nthe rest"
  HEAD = "HTTP/1.1 200 OK\r\n"
  SIZED = "#{HEAD}Content-Length: 5\r\n\r\n"
  CHUNKED = "#{HEAD}Transfer-Encoding: chunked\r\n\r\n"

  class << self
    # A text of that many bytes with its ends.
    def padded(head, size, ending = "\r\n") = "#{head}#{"x" * (size - head.bytesize - ending.bytesize)}#{ending}"

    # Fields of a KiB, and one of what is left of the size.
    def fields(size)
      lines = Array.new(size / 1024 - 1) { padded("a: ", 1024) }
      [*lines, padded("b: ", size - lines.sum(&:bytesize))].join
    end

    def codings
      ["identity", "gzip", "gzip, chunked", "chunked, gzip", "chunked, identity", "chunked,", "Chunked ", "", "x",
        "chunked\r\nTransfer-Encoding: identity"]
    end

    def lengths = ["5, 5", "5, 6", "", " 5\t", "5\r\nContent-Length: 5", "5\r\nContent-Length: 6", "+5", "5x", "-1"]

    # The lines of a head.
    def heads
      [
        "a: b\r\n \r\nc: d", "a: b\r\n\t x \r\n c", "a:\r\n x", "a: b\r\n  \t\r\n c", "a: b\r\n \0\r\n c", "\t\r\nc: d",
        "a: b \t ", "a: b\t", "a: b\r", "a: b\r\r", "a: b\v\f", "a: b\0", "a: b\nc: d", "a: b\n \nc: d", "a: b\n\r",
        "a\x01b: c", "a\x7fb: c", ": c", "#{"n" * 1024}: c", "#{"n" * 1025}: c", "a: #{"v" * 65_536}",
        "a: #{"v" * 65_537}", "a: b\r\na: #{"v" * 65_537}", "a: #{"v" * 40_000}\r\n #{"v" * 40_000}"
      ]
    end
  end

  # As large as the limit, larger by a byte, or without an end: read in one piece, and with single bytes at the end.
  LARGE = {
    "status line" => padded("HTTP/1.1 200 ", LIMIT) + "Content-Length: 5\r\n\r\nhello",
    "longer status line" => padded("HTTP/1.1 200 ", LIMIT + 1) + "Content-Length: 5\r\n\r\nhello",
    "status line without end" => "HTTP/1.1 200 #{"x" * LIMIT}",
    "field" => HEAD + padded("a: ", LIMIT - 2) + "\r\n",
    "longer field" => HEAD + padded("a: ", LIMIT + 1) + "\r\n",
    "field without end" => "#{HEAD}a: #{"x" * LIMIT}",
    "folded field" => "#{HEAD}a: b\r\n" + padded(" ", LIMIT - 8) + "\r\n",
    "head" => HEAD + fields(LIMIT - 21) + "Content-Length: 5\r\n" + "\r\nhello",
    "larger head" => HEAD + fields(LIMIT - 20) + "Content-Length: 5\r\n" + "\r\nhello",
    "head without the empty line" => HEAD + fields(LIMIT),
    "larger head in its last field" => HEAD + fields(LIMIT + 1),
    "chunk's size" => CHUNKED + padded("5;", LIMIT) + "hello\r\n0\r\n\r\n",
    "longer chunk's size" => CHUNKED + padded("5;", LIMIT + 1) + "hello\r\n0\r\n\r\n",
    "chunk's size without end" => "#{CHUNKED}5;#{"x" * LIMIT}",
    "trailer" => "#{CHUNKED}0\r\n" + padded("t: ", LIMIT) + "\r\n",
    "longer trailer" => "#{CHUNKED}0\r\n" + padded("t: ", LIMIT + 1) + "\r\n",
    "trailer without end" => "#{CHUNKED}0\r\nt: #{"x" * LIMIT}",
    "trailers" => "#{CHUNKED}0\r\n#{fields(LIMIT + 5000)}\r\n"
  }.freeze

  TOO_LARGE = {
    "longer status line" => "response line too long",
    "status line without end" => "response line too long",
    "longer field" => "response line too long",
    "field without end" => "response line too long",
    "larger head" => "response header too large",
    "larger head in its last field" => "response header too large",
    "longer chunk's size" => "response line too long",
    "chunk's size without end" => "response line too long",
    "longer trailer" => "response line too long",
    "trailer without end" => "response line too long"
  }.freeze

  # The head without the empty line takes what follows it for its own.
  AS_STOCK = (HAS_LIMITS ? LARGE : LARGE.except(*TOO_LARGE.keys, "head without the empty line")).values.freeze

  # Framing, and lines of heads.
  SMALL = [
    *codings.map { |coding| "#{HEAD}Transfer-Encoding: #{coding}\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n" },
    *codings.map { |coding| "#{HEAD}Transfer-Encoding: #{coding}\r\nContent-Range: bytes 0-4/9\r\n\r\nhello" },
    *lengths.map { |length| "#{HEAD}Content-Length: #{length}\r\n\r\nhello" },
    *heads.map { |head| "#{HEAD}#{head}\r\nContent-Length: 5\r\n\r\nhello" }
  ].freeze

  def setup = Heddle::NetHTTP.enable

  def teardown = Heddle::NetHTTP.enable

  def test_replies_in_one_piece
    assert_as_stock((AS_STOCK + SMALL).map { |reply| [reply + REST] })
  end

  def test_replies_byte_by_byte
    assert_as_stock((AS_STOCK.map { |reply| reply + REST } + SMALL).map { |reply| in_pieces(reply) })
  end

  # The texts are those of the newest version.
  def test_errors
    outcomes = outcomes_of(LARGE.values.zip, fast: true)
    errors = outcomes.map { |outcome| outcome[:error][1] if outcome[:error]&.first == Net::HTTPBadResponse }
    assert_equal TOO_LARGE, LARGE.keys.zip(errors).to_h.compact
  end

  # A hundred interim responses, and one more; the connection of the latter is closed.
  def test_interim_responses
    replies = [100, 101].map { |count| ("HTTP/1.1 100 Continue\r\n\r\n" * count) + "#{SIZED}hello" }
    replies << "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 101 + "#{SIZED}hello"
    with_scripts(replies) { |port| replies.map { exchange(port) } }
  end

  # The length of the body is known to be wrong: what follows it belongs to the body, or is not read.
  def test_a_coding_beside_a_length
    replies = %w[identity gzip].map do |coding|
      "#{HEAD}Transfer-Encoding: #{coding}\r\nContent-Length: 5\r\n\r\nhello and more"
    end
    with_scripts(replies) { |port| replies.map { exchange(port) } }
  end

  # Else the tests below would be of another version.
  def test_child_processes_have_this_net_http
    out = assert_child(<<~RUBY)
      require "heddle/net_http"
      print [Net::HTTP::VERSION, Net::Protocol::VERSION]
    RUBY
    assert_equal [Net::HTTP::VERSION, Net::Protocol::VERSION].inspect, out
  end

  unless HAS_LIMITS
    # Ruby's development had the constant before it had limits of lines.
    def test_a_constant_without_limits_of_lines
      out = assert_child(<<~RUBY)
        require "net/http"
        response = Net::HTTPResponse
        response::MAX_RESPONSE_HEADER_LENGTH = 30
        require "heddle/net_http"
        ends = UNIXSocket.pair
        Thread.new { ends.last.write("HTTP/1.1 200 OK\r\na: ", "x" * #{LIMIT}, "\r\n") }
        begin
          response.read_new(Net::HTTP::BufferedIO.new(ends.first))
        rescue Net::HTTPBadResponse => error
          puts error.message
        end
        exit!(0)
      RUBY
      assert_equal "response line too long\n", out
    end
  end

  if HAS_LIMITS
    # Constants are read when a reply is.
    [20, 30, 64, nil, 0, -1, 1.5, 1 << 80].each do |limit|
      define_method(:"test_a_limit_of_#{limit.inspect}_by_the_program") do
        replies = ["#{SIZED}hello", "#{HEAD}#{"a: b\r\n" * 20}\r\n", "#{HEAD}a: #{"b" * 70}\r\n\r\n",
          "HTTP/1.1 200 #{"x" * 64}\r\n\r\n", "#{HEAD}Transfer-Encoding: chunked\r\n\r\n0;#{"x" * 70}\r\n\r\n"]
        with_constant(Net::HTTPResponse, :MAX_RESPONSE_HEADER_LENGTH, limit) do
          assert_as_stock(replies.zip)
        end
      end
    end

    # Called for each line of a response of stock, or of chunks only.
    {"Net::HTTPResponse" => 6, "Net::HTTPOK" => 3}.each do |klass, calls|
      define_method(:"test_read_line_of_#{klass.delete(":")}_is_called") do
        out = assert_child(<<~RUBY)
          require "heddle/net_http"
          $calls = 0
          #{klass}.singleton_class.prepend(Module.new { def read_line(...) = ($calls += 1) && super })
          ends = UNIXSocket.pair
          ends.last.write(#{"#{CHUNKED}5\r\nhello\r\n0\r\n\r\n".inspect})
          io = Net::HTTP::BufferedIO.new(ends.first)
          response = Net::HTTPResponse.read_new(io)
          print response.reading_body(io, true) { response.read_body }, $calls
        RUBY
        assert_equal "hello#{calls}", out
      end
    end
  end

  if Net::HTTPHeader.const_defined?(:MAX_FIELD_LENGTH, false)
    {MAX_KEY_LENGTH: 8, MAX_FIELD_LENGTH: 40}.each do |name, limit|
      define_method(:"test_a_lower_#{name}_by_the_program") do
        with_constant(Net::HTTPHeader, name, limit) do
          assert_as_stock(["#{HEAD}#{"n" * 9}: c\r\n\r\n", "#{HEAD}a: #{"v" * 41}\r\n\r\n"].zip)
          outcomes = [false, true].map do |fast|
            fast ? Heddle::NetHTTP.enable : Heddle::NetHTTP.disable
            [{"n" * 9 => "c"}, {"a" => "v" * 41}].map do |header|
              Net::HTTP::Get.new("/", header).to_hash
            rescue ArgumentError => error
              error.message
            end
          end
          assert_equal(*outcomes)
        end
      end
    end
  end

  private

  def in_pieces(reply)
    single = [SINGLE, reply.bytesize].min
    [reply.byteslice(0, reply.bytesize - single), *reply.byteslice(-single, single).chars].reject(&:empty?)
  end

  def assert_as_stock(replies)
    stock = outcomes_of(replies, fast: false)
    fast = outcomes_of(replies, fast: true)
    in_tasks = outcomes_of(replies, fast: true, tasks: true)
    assert_operator Heddle::NetHTTP.stats[:fast], :>, 0
    replies.each_with_index do |pieces, i|
      text = pieces.join
      what = "#{text[0, 100].inspect} … #{text[-40..].inspect}"
      assert_equal stock[i], fast[i], what
      assert_equal stock[i], in_tasks[i], "in a task: #{what}"
    end
  end

  # Several at once, since they mostly wait for bytes.
  def outcomes_of(replies, fast:, tasks: false)
    fast ? Heddle::NetHTTP.enable : Heddle::NetHTTP.disable
    klass = fast ? Net::HTTP::BufferedIO : Net::BufferedIO
    return Heddle.run { replies.map { |pieces| Heddle.spawn { read(klass, pieces) } }.map(&:value) } if tasks

    replies.each_slice(8).flat_map { |some| some.map { |one| in_background { read(klass, one) } }.map(&:value) }
  end

  # The response or the error, and all that is left unread after it.
  def read(klass, pieces)
    reader, writer = UNIXSocket.pair
    sender = in_background { send_pieces(writer, pieces) }
    io = klass.new(reader, read_timeout: 20)
    outcome = begin
      response = Net::HTTPResponse.read_new(io)
      body = response.reading_body(io, true) { response.read_body }
      {status: [response.class, response.message.to_s.bytesize], header: response.to_hash, body: body}
    rescue => error
      {error: [error.class, error.message, error.cause.class, error.cause&.message]}
    end
    rest = io.read_all
    {**outcome, rest: [rest.bytesize, rest.byteslice(0, 50)]}
  ensure
    sender&.join
    [reader, writer].each(&:close)
  end

  def send_pieces(writer, pieces)
    pieces.each_with_index do |piece, i|
      sleep(PAUSE) if i > 0
      writer.write(piece)
    end
  ensure
    writer.close
  end

  # Yields the port of a server that sends each reply on a connection of its own, to stock and to accelerated clients.
  def with_scripts(replies)
    server = ScriptedHTTPServer.new
    outcomes = [[false, false], [true, false], [true, true]].map do |fast, task|
      fast ? Heddle::NetHTTP.enable : Heddle::NetHTTP.disable
      server.play(replies.map { |reply| [{pieces: [reply], ending: :close}] })
      task ? Heddle.run { yield server.port } : yield(server.port)
    end
    assert_equal outcomes[0], outcomes[1]
    assert_equal outcomes[0], outcomes[2], "in a task"
    outcomes[0]
  ensure
    server.close
  end

  def exchange(port)
    http = Net::HTTP.new("127.0.0.1", port, nil)
    http.max_retries = 0
    http.start
    begin
      response = http.get("/")
      outcome = [response.code, response.to_hash, response.body]
    rescue => error
      outcome = [error.class, error.message]
    end
    [*outcome, http.instance_variable_get(:@socket)&.closed?]
  ensure
    http.finish if http.started?
  end

  def with_constant(mod, name, value)
    before = mod.send(:remove_const, name)
    mod.const_set(name, value)
    yield
  ensure
    mod.send(:remove_const, name)
    mod.const_set(name, before)
  end
end

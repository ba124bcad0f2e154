# frozen_string_literal: true

require "test_helper"
require "support/scripted_http_server"
require "heddle"
require "heddle/net_http"
require "zlib"

# A block of read_body may be left in many ways, after each piece and in every framing. The library then reads the
# rest of the body, unless the request is left, too. Stock and accelerated Net::HTTP behave the same, and the next
# request gets its own answer.
class NetHTTPWaysOutTest < Minitest::Test
  hard_deadline 200
  mode :thread

  PARTS = %w[first second third].freeze
  READ_TIMEOUT = 0.5 # seconds

  def self.chunk(text) = "#{text.bytesize.to_s(16)}\r\n#{text}\r\n"

  head = "HTTP/1.1 200 OK\r\n"
  chunked = "#{head}Transfer-Encoding: chunked\r\n"
  zipped = Zlib.gzip(PARTS.join)
  halves = [zipped.byteslice(0, 12), zipped.byteslice(12..)]
  FRAMINGS = {
    chunked: ["#{chunked}\r\n", *PARTS.map { |part| chunk(part) }, "0\r\n\r\n"],
    chunked_at_once: [["#{chunked}\r\n", *PARTS.map { |part| chunk(part) }, "0\r\n\r\n"].join],
    ends_apart: ["#{chunked}\r\n", *PARTS.flat_map { |part| [chunk(part)[0..-3], "\r\n"] }, "0\r\n\r\n"],
    ends_in_two: ["#{chunked}\r\n", *PARTS.flat_map { |part| [chunk(part)[0..-2], "\n"] }, "0\r\n\r\n"],
    trailers: ["#{chunked}Trailer: A\r\n\r\n", *PARTS.map { |part| chunk(part) }, "0\r\nA: b\r\n\r\n"],
    sized: ["#{head}Content-Length: 16\r\n\r\n", PARTS.join],
    until_close: ["#{head}Connection: close\r\n\r\n", PARTS.join],
    inflated: ["#{head}Content-Encoding: gzip\r\nContent-Length: #{zipped.bytesize}\r\n\r\n".b, *halves],
    inflated_chunks: ["#{chunked}Content-Encoding: gzip\r\n\r\n".b, *halves.map { |half| chunk(half) }, "0\r\n\r\n"],
    interim: ["HTTP/1.1 100 Continue\r\n\r\n#{chunked}\r\n", *PARTS.map { |part| chunk(part) }, "0\r\n\r\n"],
    no_content: ["HTTP/1.1 204 No Content\r\n\r\n"],
    not_modified: ["HTTP/1.1 304 Not Modified\r\nContent-Length: 16\r\n\r\n"]
  }.freeze
  FRESH = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfresh"], ending: nil}.freeze

  class Stop < Exception # rubocop:disable Lint/InheritException
  end

  # Each reads a body with a block that is left after so many pieces.
  WAYS = {
    break: ->(response, last) { response.read_body { |piece| break if last.call(piece) } },
    throw: ->(response, last) { catch(:enough) { response.read_body { |piece| throw :enough if last.call(piece) } } },
    return: ->(response, last) { leave(response, last) },
    error: ->(response, last) {
      rescued(ArgumentError) { response.read_body { |piece| raise ArgumentError if last.call(piece) } }
    },
    exception: ->(response, last) { rescued(Stop) { response.read_body { |piece| raise Stop if last.call(piece) } } },
    io_error: ->(response, last) {
      rescued(Errno::ENOSPC) { response.read_body { |piece| raise Errno::ENOSPC if last.call(piece) } }
    },
    raise_of_another: ->(response, last) {
      rescued(Stop) { response.read_body { |piece| Thread.current.raise(Stop) if last.call(piece) } }
    },
    deadline: ->(response, last) { Heddle.deadline(0.2) { response.read_body { |piece| sleep if last.call(piece) } } }
  }.freeze

  class << self
    def rescued(error)
      yield
    rescue error
      nil
    end

    def leave(response, last)
      response.read_body { |piece| return piece if last.call(piece) }
    end
  end

  def setup
    @server = ScriptedHTTPServer.new
  end

  def teardown
    Heddle::NetHTTP.enable
    @server.close
  end

  FRAMINGS.each_key do |framing|
    define_method(:"test_#{framing}_within_the_request") do
      compare(framing, within: true) do |http, way, last|
        http.request(Net::HTTP::Get.new("/")) { |response| WAYS.fetch(way).call(response, last) }
      end
    end

    define_method(:"test_#{framing}_out_of_the_request") do
      compare(framing, within: false) { |http, way, last| WAYS.fetch(way).call(Asking.new(http), last) }
    end
  end

  # As a response, whose body is read in the request's block: the block is left and the request with it.
  Asking = Struct.new(:http) do
    def read_body(&block)
      http.request(Net::HTTP::Get.new("/")) { |response| response.read_body(&block) }
    end
  end

  # Leaving the block does not wait for the rest behind a chunk.
  def test_a_block_that_is_left_does_not_wait
    @server.play([[{pieces: ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst"], ending: nil}],
      [FRESH]])
    Heddle::NetHTTP.enable
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      http.read_timeout = 30
      assert_within(3, remeasure: 0) do
        catch(:enough) { http.request_get("/") { |response| response.read_body { throw :enough } } }
      end
      assert_equal "fresh", http.get("/").body
    end
  end

  private

  def compare(framing, within:, &ask)
    problems = WAYS.keys.product([1, 2]).filter_map do |way, count|
      Heddle::NetHTTP.disable
      stock, = outcome(framing, way, count, &ask)
      Heddle::NetHTTP.enable
      ours, answer = outcome(framing, way, count, &ask)
      in_task, answer_in_task = Heddle.run { outcome(framing, way, count, &ask) }
      # With acceleration, a connection that was left in the middle is not reused: stock returns the rest that is left
      # on it.
      next if [ours, in_task].all?(stock) && [answer, answer_in_task].all?("fresh")

      "#{way} after #{count}: stock #{stock}, accelerated #{ours}, then #{answer}; in a task #{in_task}, then " \
        "#{answer_in_task}"
    end
    assert_empty problems, problems.join("\n")
  end

  # The outcome, and the answer to the next request on that Net::HTTP.
  def outcome(framing, way, count, &ask)
    @server.play([[{pieces: FRAMINGS.fetch(framing), ending: (framing == :until_close) ? :close : nil}, FRESH], [FRESH],
      [FRESH]])
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      http.read_timeout = READ_TIMEOUT
      http.max_retries = 0
      pieces = []
      # Stock gives the block the rest of its buffer, an empty String, before it reads.
      last = ->(piece) { !piece.empty? && (pieces << piece.dup).size == count }
      told = told { ask.call(http, way, last) }
      [[pieces, told], answer_of(http)]
    end
  end

  def answer_of(http)
    http.get("/").body
  rescue => error # stock's, whatever it takes the rest for
    error.class
  end

  def told
    value = yield
    return value unless value.is_a?(Net::HTTPResponse)

    [value.code, value.body.is_a?(Net::ReadAdapter) ? :given_to_the_block : value.body]
  rescue Stop, StandardError => error
    error.class
  end
end

# frozen_string_literal: true

require "test_helper"
require "stringio"
require "support/keep_alive_helpers"

runs_on rubies: :ends

# What becomes of a request that meets a server which has closed the persistent connection.
class KeepAliveRetriesTest < Minitest::Test
  include KeepAliveHelpers

  mode :thread

  def test_a_server_that_closes_after_each_answer
    server = serve { [OK, :close] }
    5.times { assert_equal "ok", start(server) { |http| http.get("/").body } }
    assert_equal [1, 2, 3, 4, 5], server.connections
  end

  def test_a_server_that_was_restarted
    server = serve
    get(server)
    server.drop
    assert_equal "ok", post(server)
    assert_equal [1, 2], server.connections
    assert_counted reused: 0, stale: 1
  end

  # The server takes the request and closes: whether it did something, nobody knows.
  def test_a_get_is_sent_again_if_the_server_closes_meanwhile
    [0, 1, 2].each do |retries|
      server = serve { |request| (request.number == 1) ? OK : nil }
      get(server)
      assert_equal "ok", start(server) { |http|
        http.max_retries = retries
        http.get("/again").body.tap { assert_equal retries, http.max_retries }
      }
      assert_equal [1, 1, 2], server.connections
    end
  end

  # By the library's own list, in which QUERY is since net-http 0.10.
  %w[GET HEAD PUT DELETE OPTIONS TRACE QUERY PATCH POST].each do |verb|
    define_method("test_whether_#{verb}_is_sent_again") do
      server = serve { |request| (request.number == 1) ? OK : nil }
      get(server)
      repeated = Net::HTTP::IDEMPOTENT_METHODS_.include?(verb)
      start(server) do |http|
        http.max_retries = 0
        request = Net::HTTPGenericRequest.new(verb, false, false, "/again")
        repeated ? http.request(request) : assert_raises(EOFError) { http.request(request) }
      end
      assert_equal repeated ? [1, 1, 2] : [1, 1], server.connections
    end
  end

  def test_a_get_is_sent_again_after_a_reset
    server = serve { |request| (request.number == 1) ? OK : [:reset] }
    get(server)
    assert_equal "ok", start(server) { |http| (http.max_retries = 0) && http.get("/again").body }
    assert_equal [1, 1, 2], server.connections
  end

  # They belong to an earlier session.
  def test_bytes_that_come_after_a_session_has_begun
    %w[GET POST].each do |verb|
      server = serve { |request| (request.path == "/") ? [OK, 0.05, OK] : OK.sub("ok", "me") }
      get(server)
      start(server) do |http|
        http.instance_variable_get(:@socket).io.wait_readable(1)
        assert_equal "me", http.send_request(verb, "/mine").body
      end
      assert_equal [1, 2], server.connections
      assert_equal ["/", "/mine"], server.requests.map(&:path)
    end
    assert_counted opened: 4, reused: 2, stale: 2
  end

  # Then the library connects again, and has the retries of a new session: not one more.
  def test_retries_if_the_server_closes_before_the_first_request
    [0, 1, 2].each do |retries|
      server = serve { |request| OK if request.path == "/" }
      get(server)
      start(server) do |http|
        http.max_retries = retries
        server.drop
        assert_raises(EOFError) { http.get("/never") }
        assert_equal retries, http.max_retries
      end
      assert_equal [1, *2..retries + 2], server.connections
    end
  end

  # Stock Net::HTTP repeats a request after any Timeout::Error.
  def test_no_retry_after_a_deadline
    limits = [->(&block) { Heddle.deadline(0.05, &block) }, ->(&block) { Timeout.timeout(0.05, &block) }]
    server = serve { |request| (request.path == "/") ? OK : [0.2, OK] }
    requests = -> { server.requests.map(&:path) - ["/"] }
    tries = 0
    [false, true].product(limits) do |kept, limit|
      Heddle::NetHTTP.keep_alive(kept)
      [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].each do |place|
        get(server)
        wait_until do # beside load the time may be over before the server has the request
          path = "/#{tries += 1}"
          assert_raises(Timeout::Error) { place.call { limit.call { start(server) { |http| http.get(path) } } } }
          get(server)
          requests.call.include?(path)
        end
      end
    end
    assert_equal requests.call.uniq, requests.call
  end

  # All retries of a new connection are left.
  def test_retries_after_a_persistent_connection
    seen = 0
    server = serve { |request| ((seen += 1) == 1 || request.connection == 3) ? OK : nil }
    get(server)
    assert_equal "ok", start(server) { |http| http.get("/again").body }
    assert_equal [1, 1, 2, 3], server.connections
    seen = 0
    failing = serve { ((seen += 1) == 1) ? OK : nil }
    get(failing)
    assert_raises(EOFError) { start(failing) { |http| http.get("/again") } }
    assert_equal [1, 1, 2, 3], failing.connections
  end

  def test_a_post_is_sent_once
    server = serve { |request| (request.number == 1) ? OK : nil }
    get(server)
    assert_raises(EOFError) { post(server) }
    assert_equal [%w[GET POST], [1, 1]], [server.requests.map(&:verb), server.connections]
  end

  def test_no_retry_once_the_answer_has_begun
    server = serve { |request| (request.number == 1) ? OK : ["HTTP/1.1 200 OK\r\n", 0.02, :reset] }
    get(server)
    assert_raises(SystemCallError, IOError) do
      start(server) { |http| (http.max_retries = 0) && http.get("/again") }
    end
    assert_equal [1, 1], server.connections
    start = serve { |request| (request.number == 1) ? OK : ["HTT", :close] }
    get(start)
    assert_raises(EOFError) { start(start) { |http| (http.max_retries = 0) && http.get("/again") } }
    assert_equal [1, 1], start.connections
  end

  def test_no_retry_after_a_read_timeout
    server = serve { |request| (request.number == 1) ? OK : [0.5, OK] }
    get(server)
    http = Net::HTTP.new("127.0.0.1", server.port)
    http.read_timeout = 0.03
    http.max_retries = 0
    assert_raises(Net::ReadTimeout) { http.start { http.get("/late") } }
    assert_equal [1, 1], server.connections
  end

  # Not its rest, for which the server would wait in vain.
  def test_a_stream_that_cannot_be_read_again_is_sent_once
    server = serve { |request| (request.number == 1) ? OK : nil }
    get(server)
    put = Net::HTTP::Put.new("/", "Content-Length" => "3")
    put.body_stream = StringIO.new("abc").tap { |stream| stream.singleton_class.undef_method(:pos, :seek) }
    assert_raises(EOFError) { start(server) { |http| http.request(put) } }
    assert_equal [%w[GET PUT], [1, 1]], [server.requests.map(&:verb), server.connections]
  end

  def test_a_form_is_sent_again_if_it_has_no_streams
    {"text" => [1, 1, 2], StringIO.new("text") => [1, 1]}.each do |value, connections|
      server = serve { |request| (request.number == 1) ? OK : nil }
      get(server)
      put = Net::HTTP::Put.new("/")
      put.set_form([["name", value]], "multipart/form-data")
      begin
        start(server) { |http| http.request(put) }
      rescue EOFError
        nil
      end
      assert_equal connections, server.connections
    end
  end

  def test_a_stream_is_sent_again_from_where_it_was
    server = serve { |request| (request.number == 1) ? OK : nil }
    get(server)
    put = Net::HTTP::Put.new("/", "Content-Length" => "4")
    put.body_stream = StringIO.new("before body").tap { |stream| stream.pos = 7 }
    start(server) { |http| http.request(put) }
    assert_equal %w[body body], server.requests.last(2).map(&:body)
  end
end

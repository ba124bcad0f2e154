# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/keeping_server"
require "net/http"

class UnmodifiedNetHTTPTest < UnmodifiedTestCase
  def setup
    super
    @address = URI("http://localhost:#{server(:load).port}") # by name, so that the look-up is included
  end

  # The first example of the NeverBlock posts.
  on_each_host "twenty requests of a second take a second" do |host|
    assert_at_once(host, each: 1.0, under: 2.0, expected: ["200"] * COUNT) { get(1000) }
  end

  def test_the_same_requests_in_a_row
    assert_in_a_row(each: 0.2, expected: ["200"] * COUNT) { get(200) }
  end

  on_each_host "one connection kept alive by each task" do |host|
    expected = Array.new(COUNT) { %w[200 200 200] }
    assert_at_once(host, each: 0.6, under: 1.8, expected: expected) do
      Net::HTTP.start(@address.host, @address.port) { |http| Array.new(3) { http.get("/200").code } }
    end
  end

  # If this fails, Net::HTTP closes a session that a cancel has left: doc/limits.md need no longer say otherwise.
  def test_after_a_cancel_an_open_session_gives_the_next_request_the_wrong_answer
    answers = Thread::Queue.new
    server = KeepingServer.new do |request|
      answers.pop if request.path == "/cancelled"
      "HTTP/1.1 200 OK\r\nContent-Length: #{request.path.size}\r\n\r\n#{request.path}"
    end
    Heddle.run do
      Net::HTTP.start("127.0.0.1", server.port) do |http|
        task = Heddle.spawn { http.get("/cancelled") }
        wait_until { server.requests.any? }
        task.cancel
        task.wait
        answers << :now
        assert_equal "/cancelled", http.get("/next").body
      end
    end
  ensure
    server.close
  end

  private

  def get(milliseconds) = Net::HTTP.get_response(@address + "/#{milliseconds}").code
end

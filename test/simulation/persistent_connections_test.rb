# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "heddle/net_http"
require "net/http"

runs_on rubies: :ends

# Accelerated Net::HTTP with persistent connections, against servers that number their answers.
class SimulatedKeptConnectionsTest < Minitest::Test
  include Simulated

  FAILURES = [SystemCallError, IOError, Timeout::Error].freeze

  def setup
    Heddle::NetHTTP.keep_alive
  end

  def teardown
    Heddle::NetHTTP.keep_alive(false)
  end

  # Among cancels and deadlines, no answer is for another request, a POST reaches the server once at most, and what
  # succeeded did reach it.
  def test_answers_belong_to_their_requests
    answered = refused = cancelled = 0
    simulate(100) do |world|
      served = Hash.new(0)
      world.host("one.example") { |host| serve(host, world, served) }
      world.host("two.example") { |host| serve(host, world, served) }
      %w[one.example two.example].each { |name| world.link(name, **bad_link(world)) }
      tasks = Array.new(4) { |task| Heddle.spawn { Array.new(6) { |turn| ask(world, "#{task}-#{turn}") } } }
      outcomes = tasks.flat_map(&:value)
      answered += outcomes.count(:answered)
      refused += outcomes.count(:failed)
      cancelled += outcomes.count(:cancelled)
      repeated = served.select { |(verb, _), count| verb == "POST" && count > 1 }
      assert_empty repeated
    end
    assert_operator answered, :>, refused # the world is bad, but not that bad
    assert_operator refused, :>, 0
    assert_operator cancelled, :>, 0
    assert_operator Heddle::NetHTTP.stats[:reused], :>, 0
  end

  private

  def serve(host, world, served)
    host.http(80) do |request|
      served[[request.verb, request.path]] += 1
      sleep(world.draw(0.0..2.0)) if world.draw < 0.3
      fields = (world.draw < 0.1) ? {"connection" => "close"} : {}
      [200, fields, "#{request.path}#{"." * world.draw(0..20_000)}"]
    end
  end

  def ask(world, id)
    asking = Heddle.spawn { request(world, id) }
    if world.draw < 0.2
      sleep(world.draw(0.0..4.0))
      asking.cancel
    end
    asking.value
  rescue Heddle::TaskCancelled
    :cancelled
  end

  def request(world, id)
    http = Net::HTTP.new((world.draw < 0.5) ? "one.example" : "two.example")
    http.open_timeout = http.read_timeout = 5
    path = "/#{id}"
    sleep(world.draw(0.0..3.0))
    response = Heddle.deadline(world.draw(0.5..60.0)) do
      (world.draw < 0.5) ? http.get(path) : http.post(path, "x" * 2000)
    end
    assert_equal path, response.body.delete(".")
    :answered
  rescue *FAILURES
    :failed
  end
end

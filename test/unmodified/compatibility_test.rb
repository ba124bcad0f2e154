# frozen_string_literal: true

require "test_helper"
require "compatibility/survey"

runs_on rubies: :newest, backends: :one, short: false

# The kit of doc/compatibility.md with a few of its libraries, which this bundle has, too. What the page holds the
# machine to may be late here: other tests run beside this one.
class CompatibilityTest < Minitest::Test
  hard_deadline 150

  LIBRARIES = ["net/http", "net-http-persistent", "http", "httpx", "excon", "faraday, net_http", "rest-client",
    "aws-sdk-s3", "async-http", "redis", "open-uri"].freeze
  BLOCKING = "typhoeus"
  QUESTIONS = Compatibility::Examination::QUESTIONS
  # Where the peer has to end the request, it does so after 3.5 s.
  AT_MOST = 2.5

  def test_what_the_kit_finds
    found = Compatibility::Survey.new(Compatibility.libraries.fetch_values(*LIBRARIES, BLOCKING)).run
    LIBRARIES.each { |name| check(name, found.fetch(name)) }
    blocking = found.fetch(BLOCKING)
    assert_operator blocking.dig("at_once", "ten"), :>=, 9 * blocking.dig("at_once", "one"), blocking.inspect
    assert_equal %i[at_once tasks threads cancel], Compatibility::Finding.new(blocking).faults(QUESTIONS).keys
  end

  private

  def check(name, found)
    assert_equal %w[version at_once tasks threads cancel afterwards], found.keys, "#{name}: #{found}"
    assert_operator found.dig("at_once", "ten"), :<, 7 * found.dig("at_once", "one"), name
    found.values_at("tasks", "threads").each do |deadlines|
      assert_equal %w[silent stalled dripping], deadlines.keys, name
      deadlines.each { |fault, after| assert_includes 0.95..AT_MOST, after, "#{name}, #{fault}: #{found}" }
    end
    assert_operator found["cancel"], :<, 1, name
    assert_afterwards(name, found.fetch("afterwards"))
  end

  # The late answer to an interrupted request is seen where the client takes it for that of the next.
  def assert_afterwards(name, states)
    assert_empty states.values.flatten - ["new", "same", "error, new", "error, same", "closed", "wrong"], name
    assert_equal (name == "net/http") ? %w[cancel] : [], states.select { |_, words| words.include?("wrong") }.keys, name
  end
end

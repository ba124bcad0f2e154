# frozen_string_literal: true

require "test_helper"
require "json"
require "stringio"
require "heddle/lab"

runs_on short: false

# The benches of bad networks, run once with little work: their figures are bounded loosely, as in every test.
class BadNetworksBenchTest < Minitest::Test
  hard_deadline 180

  # @return [Array<Hash>] the rounds
  def bench(*argv)
    out, err = StringIO.new, StringIO.new
    status = Heddle::Lab::CLI.run(["bench", *argv, "--rounds", "1", "--deadline", "30", "-o", "json"],
      out: out, err: err)
    assert_equal [0, ""], [status, err.string], out.string
    JSON.parse(out.string)["rounds"]
  end

  def test_deadlines
    rounds = bench("deadlines", "--clients", "redis-client,Net::HTTP", "--models", "heddle,heddle_threads")
    assert_equal 4, rounds.size
    rounds.each do |round|
      measures = round["measures"]
      %w[silent line value drip].each do |fault|
        assert_includes 0.99..1.5, measures[fault], "#{round["model"]}, #{round["case"]}, #{fault}"
        assert_equal %w[Heddle::DeadlineExceeded right], measures["states"][fault].values_at("outcome", "next")
      end
    end
  end

  # The client's own timeout bounds one wait: it does not end a drip.
  def test_deadlines_shows_clients_that_keep_no_deadline
    measures = bench("deadlines", "--clients", "redis-client", "--models", "own").first["measures"]
    assert_includes 0.99..1.5, measures["silent"]
    assert_operator measures["drip"], :>=, 10
  end

  # A gap may be the machine's: only one that appears a second time is the loop's.
  def test_names
    rounds = bench("names", "--models", "heddle_deadline")
    assert_equal 8, rounds.size
    rounds = bench("names", "--models", "heddle_deadline") if rounds.any? { |round| late?(round) }
    rounds.each do |round|
      wanted = round["case"].include?("A works") ? "connected" : "nothing"
      assert_equal wanted, round["measures"]["outcome"], round["case"]
      refute late?(round), round
    end
  end

  private

  def late?(round) = round["measures"]["gap"] > 0.1 || round["measures"]["taken"] > 1.5
end

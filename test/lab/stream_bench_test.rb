# frozen_string_literal: true

require "test_helper"
require "json"
require "stringio"
require "heddle/lab"

runs_on short: false

# The bench of streams, once with one round: that it measures what it claims, not how fast this machine is.
class StreamBenchTest < Minitest::Test
  hard_deadline 240

  def test_each_model_answers_correctly_in_each_place
    out, err = StringIO.new, StringIO.new
    status = Heddle::Lab::CLI.run(%w[
      bench stream --models raw,io_stream_timeout,stream,stream_deadline --scale 0.05 --rounds 1 --deadline 60 -o json
    ], out: out, err: err)
    assert_equal [0, ""], [status, err.string], out.string
    rounds = JSON.parse(out.string)["rounds"].reject { |round| round["twin"] }
    assert_equal 2 * 5 + 4 + 2, rounds.size # a limit changes nothing beside a busy thread
    rounds.each do |round|
      assert_operator round["measures"]["operations"], :>, 0, round.inspect
      assert_equal round["case"].include?("beside"), round["measures"].key?("beside")
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "json"
require "stringio"
require "heddle/lab"

# The bench of memcached's clients, once with little: that each does what it says, not how fast this machine is.
class MemcachedBenchTest < Minitest::Test
  hard_deadline 120

  def test_each_client_does_each_operation
    out, err = StringIO.new, StringIO.new
    status = Heddle::Lab::CLI.run(%w[bench memcached --models dalli,dalli_timeout,heddle,heddle_deadline,raw --rounds 1
      --scale 0.02 --deadline 60 -o json], out: out, err: err)
    skip err.string if status == 69
    assert_equal [0, ""], [status, err.string], out.string
    rounds = JSON.parse(out.string)["rounds"].reject { |round| round["twin"] }
    assert_equal 4 * 7 + 3, rounds.size
    rounds.each { |round| assert_operator round["measures"]["operations"], :>, 0, round.inspect }
  end
end

# frozen_string_literal: true

require "test_helper"
require "json"
require "stringio"
require "heddle/lab"

runs_on short: false

# The bench of memcached's clients, once with little work: that each does what it claims, not how fast this machine
# is.
class MemcachedBenchTest < Minitest::Test
  hard_deadline 240 # some forty processes, each with the libraries of its client

  def test_each_client_does_each_operation
    out, err = StringIO.new, StringIO.new
    status = Heddle::Lab::CLI.run(%w[bench memcached --models dalli,dalli_timeout,heddle,heddle_deadline,raw --rounds 1
      --scale 0.02 --deadline 60 --no-system-calls -o json], out: out, err: err)
    assert_equal [0, ""], [status, err.string], out.string
    rounds = JSON.parse(out.string)["rounds"].reject { |round| round["twin"] }
    assert_equal 4 * 7 + 3, rounds.size
    rounds.each { |round| assert_operator round["measures"]["operations"], :>, 0, round.inspect }
  end

  def test_system_calls_are_counted
    out, err = StringIO.new, StringIO.new
    Heddle::Lab::CLI.run(
      %w[bench memcached --models heddle --operations get --rounds 1 --scale 0.02 --deadline 100], out: out, err: err
    )
    shown = out.string[/^System calls.*?^heddle\s+(\S+)/m, 1]
    skip "this machine does not let strace trace" if shown == "–"
    assert_in_delta 3, Float(shown), 0.5, out.string # send, wait, receive; after an interrupt it waits again
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/servers"
require "support/shaping_proxy"

# SIGTERM in the middle of a thousand requests: every one is cancelled and its clean-up runs, and the process ends by
# the signal.
class SignalUnderLoadTest < Minitest::Test
  include LoopHelpers
  include ShapingProxies

  mode :fiber

  COUNT = 1000

  REQUESTS = <<~RUBY
    require "net/http"
    Process.setrlimit(:NOFILE, Process.getrlimit(:NOFILE).last)
    ended = 0
    at_exit { puts "ended \#{ended}" }
    request = lambda do |port|
      Net::HTTP.start("127.0.0.1", port) { |http| http.get("/60000") }
    ensure
      ended += 1
    end
  RUBY

  def test_sigterm_in_the_middle_of_a_thousand_requests
    ends_in_order("Heddle.run { #{COUNT}.times { Heddle.spawn { request.call(PORT) } } }", :TERM)
  end

  def test_sigterm_in_a_pool_of_a_thousand
    ends_in_order("Heddle::FiberPool.new(#{COUNT}).map(1..#{COUNT}) { request.call(PORT) }", :TERM)
  end

  def test_sigint_in_the_middle_of_a_thousand_requests
    ends_in_order("Heddle.run { #{COUNT}.times { Heddle.spawn { request.call(PORT) } } }", :INT)
  end

  private

  def ends_in_order(program, signal)
    skip "this process may open few descriptors" if Process.getrlimit(:NOFILE).last < 2 * COUNT + 100

    proxy = shaping_proxy(Servers.load)
    killed = nil
    outcome = in_child("#{REQUESTS}\n#{program.gsub("PORT", proxy.port.to_s)}") do |pid, _|
      # Each request has some 60 bytes or more: all of them are under way.
      wait_until(20, what: "a thousand requests") do
        proxy.stats.values_at("open", "request_bytes").then { |open, bytes| open == COUNT && bytes > COUNT * 60 }
      end
      killed = monotonic
      Process.kill(signal, pid)
    end
    assert_operator monotonic - killed, :<, stretched(10)
    assert_equal "ended #{COUNT}\n", outcome.out
    assert_equal Signal.list[signal.to_s], outcome.status.termsig
  end
end

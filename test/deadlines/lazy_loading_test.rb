# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Net::HTTP loads OpenSSL when it first rescues an error. Ruby 3.1 crashes where several threads wait for such a load
# and an exception is raised in them meanwhile: a defect of Ruby's, which deadlines that end together in several
# threads trigger.
class LazyLoadingTest < Minitest::Test
  include LoopHelpers

  mode :thread

  # Several threads wait for a server that never answers.
  WAITING = <<~RUBY
    require "net/http"
    server = TCPServer.new("127.0.0.1", 0)
    threads = Array.new(4) do
      Thread.new do
        http = Net::HTTP.start("127.0.0.1", server.addr[1])
        begin
          GET
        rescue => error
          error.class
        end
      end
    end
  RUBY

  RAISING = <<~RUBY
    sleep 0.2
    20.times { threads.each { |thread| thread.raise(Timeout::Error, "now") if thread.alive? } && sleep(0.003) }
    threads.each { |thread| thread.join rescue nil }
  RUBY

  def test_ruby_crashes_without_heddle
    skip "a defect of Ruby 3.1 only" if ruby_at_least?("3.2")

    # This loads Heddle, and does not use it. A race: one try is nearly always enough.
    crashed = Array.new(10).any? do
      outcome = in_child("#{WAITING.sub("GET", "http.get('/')")}\n#{RAISING}")
      outcome.err.include?("[BUG]")
    end
    assert crashed, "Ruby #{RUBY_VERSION} does not crash any more: doc/limits.md says it does"
  end

  def test_with_openssl_loaded_many_threads_deadlines_end_together
    3.times do
      out = assert_child("require 'openssl'\n#{WAITING.sub("GET", "Heddle.deadline(0.3) { http.get('/') }")}\n" \
        "puts threads.map(&:value).tally.inspect")
      assert_equal "#{{Heddle::DeadlineExceeded => 4}.inspect}\n", out
    end
  end
end

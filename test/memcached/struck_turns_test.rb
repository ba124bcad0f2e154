# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"

# Thread#raise strikes a thread while it hands its connection to a thread that waits for one. The waiting thread gets
# the connection all the same, and the pool loses no place.
class MemcachedStruckTurnsTest < Minitest::Test
  include MemcachedHelpers

  mode :thread
  hard_deadline 60

  Struck = Class.new(StandardError)
  THREADS = 4
  SECONDS = 3

  def test_threads_that_are_struck_while_others_wait_for_their_turn
    cache = Heddle::Memcached.new("127.0.0.1:#{real_server.port}", timeout: 10, pool: 2)
    server = cache.instance_variable_get(:@servers).first
    finish = monotonic + SECONDS
    threads = Array.new(THREADS) do
      Thread.new { Thread.handle_interrupt(Struck => :never) { ask(cache) until monotonic > finish } }
    end
    threads.each { |thread| thread.report_on_exception = false }
    strike(threads) while monotonic < finish
    threads.each { |thread| join(thread) }
    assert_equal server.idle_connections, server.open_connections
    cache.close
  end

  private

  def ask(cache)
    Thread.handle_interrupt(Struck => :immediate) { 20.times { cache.get("key") } }
  rescue Struck
    nil
  end

  def strike(threads)
    sleep(0.0003)
    threads.sample.raise(Struck)
  end

  def join(thread)
    assert thread.join(20), "it waits on: #{thread.backtrace&.first(3)}"
  rescue Struck
    nil # that came after its last request
  end
end

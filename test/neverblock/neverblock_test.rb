# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# The names of 2008 on today's loop.
class NeverBlockTest < Minitest::Test
  include LoopHelpers

  def test_the_client_of_the_post_against_its_server
    need_eventmachine
    with_eventmachine_server do |port|
      command = [RbConfig.ruby, "-I#{ROOT}/lib", "#{ROOT}/examples/neverblock_client.rb", "http://localhost:#{port}"]
      out = IO.popen(command, &:read)
      assert_equal ["done"] * 20, out.lines(chomp: true).first(20)
      assert_match(/\A\d\.\d seconds\n\z/, out.lines.last)
      assert_includes 1..4, Float(out.lines.last[/\S+/]) # for the requests, without the program's start
    end
  end

  def test_the_pool_never_blocks_its_spawner
    out = assert_child(<<~RUBY)
      require "heddle/neverblock"
      running = most = 0
      begun = false
      EM.run do
        pool = NB::FiberPool.new(5)
        500.times do
          pool.spawn do
            most = [most, running += 1].max
            sleep(0.001) until begun
            running -= 1
          end
        end
        begun = true
        puts pool.statistics.values_at(:running, :queued, :spawned).inspect
      end
      puts most, running
    RUBY
    assert_equal ["[5, 495, 500]", "5", "0"], out.lines(chomp: true)
  end

  def test_run_returns_the_blocks_value_and_raises_its_error
    out = assert_child(<<~RUBY)
      require "heddle/neverblock"
      puts EM.run { sleep(0.001) && :value }
      begin
        EM.run { raise IOError, "out of run" }
      rescue IOError => error
        puts error.message
      end
      puts NB::FiberPool.new.size
    RUBY
    assert_equal ["value", "out of run", "50"], out.lines(chomp: true)
  end

  def test_eventmachine_loaded_before_raises_a_clear_error
    need_eventmachine
    outcome = in_child("require 'eventmachine'; require 'heddle/neverblock'", gems: true)
    refute_predicate outcome.status, :success?
    assert_match(/EventMachine is loaded.*\(Heddle::ReactorLoaded\)/m, outcome.err)
  end

  def test_eventmachine_loaded_later_raises_a_clear_error
    outcome = in_child("require 'heddle/neverblock'; reactor = EM; module EventMachine; end; reactor.run {}")
    assert_match(/EventMachine is loaded.*\(Heddle::ReactorLoaded\)/m, outcome.err)
  end

  private

  def need_eventmachine
    skip "eventmachine does not compile for Ruby 4.1" if ruby_at_least?("4.1")
  end

  def with_eventmachine_server
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    server = IO.popen([RbConfig.ruby, "#{ROOT}/examples/neverblock_server.rb", port.to_s])
    assert_equal "ready\n", server.gets
    yield port
  ensure
    Process.kill(:KILL, server.pid)
    server.close
  end
end

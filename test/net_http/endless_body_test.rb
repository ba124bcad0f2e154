# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# A body of small chunks that arrives faster than it is read, and never ends: its reader never waits, and must notice
# all the same that its time is over, and let others have their turn.
class NetHTTPEndlessBodyTest < Minitest::Test
  include LoopHelpers

  SETTING = <<~'RUBY'
    require "net/http"
    require "timeout"
    require "heddle/net_http"
    server = TCPServer.new("127.0.0.1", 0)
    port = server.addr[1]
    pid = fork do
      chunks = "8\r\nabcdefgh\r\n" * 40_000
      peer = server.accept
      nil until peer.gets == "\r\n"
      peer.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
      loop { peer.write(chunks) }
    rescue SystemCallError
      exit!(0)
    end
    at_exit { Process.kill(:KILL, pid) && Process.wait(pid) }
    read = -> { Net::HTTP.start("127.0.0.1", port, nil) { |http| http.get("/") } }
    outcome = ->(&block) { block.call && "a body" rescue $!.class.name }
  RUBY

  def test_a_deadline_in_a_thread_ends_an_endless_body
    assert_equal "FloatDomainError", assert_child(SETTING + <<~RUBY, timeout: 8)
      # Net::HTTP would ask again after a Timeout::Error
      print outcome.call { Timeout.timeout(0.2, FloatDomainError) { read.call } }
    RUBY
  end

  def test_other_threads_run_during_an_endless_body
    assert_equal "interrupted", assert_child(SETTING + <<~RUBY, timeout: 8)
      reader = Thread.new { read.call rescue $!.message }
      sleep(0.2) # in which it has come to the body
      print reader.raise("interrupted") || reader.value
    RUBY
  end

  def test_a_deadline_in_a_task_ends_an_endless_body_and_others_run
    ended, turns = eval(assert_child(SETTING + <<~RUBY, timeout: 8)) # standard:disable Security/Eval
      turns = 0
      Heddle.run do
        beat = Heddle.spawn { loop { sleep(0.001) && turns += 1 } }
        ended = outcome.call { Heddle.deadline(0.6) { read.call } }
        print [ended, turns].inspect
        beat.cancel
      end
    RUBY
    assert_equal "Heddle::DeadlineExceeded", ended
    assert_operator turns, :>, 3 # if they had no turn it is one at most
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "net/http"

runs_on rubies: :ends, except: %i[portable newest_net_http]

# Beside a thread that computes, each release of the GVL may cost 100 ms: an accelerated Net::HTTP releases it once
# for a late reply, and not at all to connect, to check whether the connection is still open, or to close.
class NetHTTPComputingThreadTest < Minitest::Test
  include LoopHelpers

  # A server in its own process that answers after so many seconds; a thread that counts as fast as it can; and the
  # check whether that thread ran: a block that never released the GVL leaves the count unchanged.
  SETTING = <<~RUBY
    require "net/http"
    require "heddle/net_http" unless ENV["STOCK"]
    server = TCPServer.new(ENV["HOST"] || "127.0.0.1", 0)
    port = server.addr[1]
    late = ENV["LATE"].to_f
    pid = fork do
      loop do
        peer = server.accept
        peer.setsockopt(:TCP, :NODELAY, true)
        Thread.new do
          while peer.gets
            nil until peer.gets == "\\r\\n"
            sleep(late)
            body = (ENV["SIZE"] ? "abcdefgh" * (ENV["SIZE"].to_i / 8) : "done")
            peer.write("HTTP/1.1 200 OK\\r\\nContent-Length: \#{body.bytesize}\\r\\n\\r\\n\#{body}")
          end
        rescue SystemCallError
        end
      end
    end
    at_exit { Process.kill(:KILL, pid) && Process.wait(pid) }
    http = -> { Net::HTTP.new(ENV["HOST"] || "127.0.0.1", port).tap { |one| one.open_timeout = one.read_timeout = 30 } }
    ask = ->(one) { one.get("/").body == "done" or raise "an answer that is not the one" }
    turns = 0
    compute = -> { Thread.new { loop { turns += 1 } }.tap { Thread.pass until turns > 0 } }
    let_go = lambda do |count, &block|
      Array.new(count) { before = turns; block.call; turns == before ? 0 : 1 }.sum
    end
    releases = -> { Heddle.gvl_statistics.fetch(:releases) }
  RUBY

  def beside(code, **env)
    printed = assert_child(SETTING + code, env: env.transform_keys(&:to_s), timeout: 50)
    eval(printed) # standard:disable Security/Eval
  end

  CONNECT_AND_CLOSE = <<~RUBY
    http.call.start { |one| ask.call(one) }
    compute.call
    print(let_go.call(20) { http.call.start {} })
  RUBY

  # A time slice may end in the middle of one or two.
  def test_connecting_and_closing_keep_the_gvl
    assert_operator beside(CONNECT_AND_CLOSE), :<=, 8
  end

  def test_connecting_by_a_name_of_the_hosts_file_keeps_the_gvl
    assert_operator beside(CONNECT_AND_CLOSE, HOST: "localhost"), :<=, 8
  end

  # Proves that the count shows a release: Ruby 3.4 hands the GVL over each time.
  def test_stock_releases_the_gvl_each_time
    skip "who gets the lock is luck but on Ruby 3.4 and 4.0" unless ruby_at_least?("3.4") && !ruby_at_least?("4.1")
    assert_operator beside(CONNECT_AND_CLOSE, STOCK: "1"), :>=, 15
  end

  def test_requests_on_one_connection_poll_for_their_replies
    count, releases, looks = beside(<<~RUBY)
      http.call.start do |one|
        ask.call(one)
        compute.call
        before = Heddle.gvl_statistics
        let_go = let_go.call(200) { ask.call(one) }
        after = Heddle.gvl_statistics
        print [let_go, after[:releases] - before[:releases], after[:looks] - before[:looks]].inspect
      end
    RUBY
    # The first finds out that the other thread computes; a busy machine's server is late now and then.
    assert_operator count, :<=, 100
    assert_operator releases, :<=, 100
    assert_operator looks, :>=, 100
  end

  def test_late_replies_on_one_connection_cost_one_gvl_release_each
    releases = beside(<<~RUBY, LATE: "0.02")
      http.call.start do |one|
        ask.call(one)
        compute.call
        before = releases.call
        10.times { ask.call(one) }
        print releases.call - before
      end
    RUBY
    assert_equal 10, releases
  end

  # Including the connection. The tests above would show releases that Ruby's own methods add to connect and close.
  def test_a_late_reply_on_its_own_connection_costs_one_gvl_release
    releases = beside(<<~RUBY, LATE: "0.06")
      http.call.start { |one| ask.call(one) }
      compute.call
      before = releases.call
      10.times { http.call.start { |one| ask.call(one) } }
      print releases.call - before
    RUBY
    assert_equal 10, releases
  end

  # A large body is received without the GVL: bytes that have arrived, or arrive at once, need no release.
  def test_a_body_that_has_arrived_costs_no_gvl_release
    releases = beside(<<~RUBY, LATE: "0.02", SIZE: "120000")
      http.call.start do |one|
        body = -> { one.request_get("/") { |response| sleep(0.01) && response.read_body }.body }
        body.call
        compute.call
        body.call
        before = releases.call
        10.times { body.call == "abcdefgh" * 15_000 or raise "a body that is not the one" }
        print releases.call - before
      end
    RUBY
    assert_operator releases, :<=, 14 # one each for the head; without the poll it is twenty
  end

  def test_polling_can_be_switched_off
    releases, looks = beside(<<~RUBY)
      http.call.start do |one|
        ask.call(one)
        compute.call
        Heddle.spin_before_release = false
        before = Heddle.gvl_statistics
        10.times { ask.call(one) }
        after = Heddle.gvl_statistics
        print [after[:releases] - before[:releases], after[:looks] - before[:looks]].inspect
      end
    RUBY
    assert_equal 0, looks
    assert_includes 1..10, releases # now and then a reply arrives before the wait for it
  end
end

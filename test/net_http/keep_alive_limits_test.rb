# frozen_string_literal: true

require "test_helper"
require "support/keep_alive_helpers"

runs_on rubies: :ends, except: %i[portable]

# How long persistent connections stay, and how many.
class KeepAliveLimitsTest < Minitest::Test
  include KeepAliveHelpers

  mode :thread

  def test_idle_for_too_long
    Heddle::NetHTTP.keep_alive(idle: 0.05)
    server = serve
    get(server)
    wait_until { server.endings == [:eof] }
    get(server)
    assert_equal [1, 2], server.connections
    assert_operator Heddle::NetHTTP.stats[:evicted], :>, @before[:evicted]
  end

  def test_the_server_s_limit
    server = serve { "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok" }
    get(server)
    get(server)
    wait_until { server.endings == [:eof] }
    assert_equal [1, 1], server.connections
  end

  def test_the_thread_that_closes_ends
    Heddle::NetHTTP.keep_alive(idle: 0.05)
    server = serve
    get(server)
    wait_until { Thread.list.none? { |thread| thread.name == "heddle keep-alive" } }
    assert_equal 0, Heddle::NetHTTP.stats[:idle]
  end

  def test_the_thread_that_closes_ends_when_all_is_cleared
    server = serve
    5.times do
      get(server)
      Heddle::NetHTTP.keep_alive_clear # perhaps before that thread has begun
      wait_until { Thread.list.none? { |thread| thread.name == "heddle keep-alive" } }
    end
  end

  def test_the_most_of_a_host_and_the_most_of_all
    Heddle::NetHTTP.keep_alive(per_host: 2, total: 3)
    servers = [serve, serve]
    servers.each do |server|
      sessions = Array.new(3) { start(server) }
      sessions.each { |http| http.get("/") }
      sessions.each(&:finish)
    end
    assert_equal 3, Heddle::NetHTTP.stats[:idle]
    wait_until { servers.map(&:open) == [1, 2] }
    get(servers[1])
    assert_equal 3, servers[1].connections.last, "the one that rested last"
  end

  # Without the GC, which would close it some time later.
  def test_one_that_makes_room_is_closed_also_when_an_interrupt_comes
    Heddle::NetHTTP.keep_alive(per_host: 1)
    server = serve
    first, second = Array.new(2) { start(server).tap { |http| http.get("/") } }
    first.finish
    GC.disable
    store.define_singleton_method(:watch) { |_connection| raise Interrupt, "here" }
    assert_raises(Interrupt) { second.finish }
    wait_until { server.open == 1 }
  ensure
    GC.enable
    store.singleton_class.remove_method(:watch)
  end

  # No thread would close it before a session left another connection.
  def test_one_that_no_thread_watches_is_closed
    server = serve
    GC.disable
    interrupted_while_it_waits { get(server) }
    wait_until { server.endings == [:eof] }
    interrupted_while_it_waits { Heddle.run { get(server) } }
    wait_until { server.endings == [:eof, :eof] }
    assert_equal 0, Heddle::NetHTTP.stats[:idle]
  ensure
    GC.enable
  end

  def test_clear
    server = serve
    get(server)
    Heddle::NetHTTP.keep_alive_clear
    wait_until { server.endings == [:eof] }
    get(server)
    assert_equal [1, 2], server.connections
  end

  def test_a_clock_that_jumps
    [:CLOCK_BOOTTIME, :CLOCK_REALTIME].each do |clock|
      next unless Process.const_defined?(clock)

      server, other = serve, serve
      get(server)
      get(other)
      with_clock(Process.const_get(clock), 5) { get(server) }
      assert_equal [1, 2], server.connections
      wait_until { other.endings == [:eof] }
    end
  end

  def test_a_session_that_rested_by_the_program_s_clock
    server = serve
    start(server) do |http|
      2.times { http.get("/") }
      with_clock(Process::CLOCK_MONOTONIC, http.keep_alive_timeout + 1) { http.get("/") }
    end
    assert_equal [1, 1, 2], server.connections
  end

  def test_a_host_that_has_moved
    addresses = ["127.0.0.1"]
    asked = 0
    finds = Module.new do
      define_method(:getaddrinfo) do |name, *rest|
        next super(name, *rest) unless name == "localhost"

        asked += 1
        addresses.flat_map { |address| super(address, *rest) }
      end
    end
    server = serve
    Heddle::NetHTTP.keep_alive(idle: 0.3)
    replaced(Addrinfo, finds) do
      visit = -> { Net::HTTP.start("localhost", server.port) { |http| http.get("/") } }
      visit.call
      until asked == 1 # used all the time, and yet looked up
        visit.call
        sleep 0.02
      end
      assert_equal [1], server.connections.uniq
      addresses.replace(["127.0.0.2"])
      visit.call until asked == 2
      visit.call
      assert_equal [1, 2], server.connections.uniq
    end
  end

  private

  def store = Heddle::NetHTTP.const_get(:KeepAlive).instance_variable_get(:@store)

  # Interrupts the block in a thread, while it waits for the store's lock.
  def interrupted_while_it_waits(&block)
    lock = store.instance_variable_get(:@lock)
    lock.synchronize do
      thread = Thread.new(&block).tap { |one| one.report_on_exception = false }
      wait_until { Heddle::NetHTTP.stats[:idle] == 1 && thread.stop? }
      thread.raise(Interrupt, "here")
      wait_until { Heddle::NetHTTP.stats[:idle] == 0 }
      assert_raises(Interrupt) { thread.value }
    end
  end

  def with_clock(clock, seconds, &block)
    jumped = Module.new do
      define_method(:clock_gettime) { |id, *rest| super(id, *rest) + ((id == clock) ? seconds : 0) }
    end
    replaced(Process, jumped, &block)
  end
end

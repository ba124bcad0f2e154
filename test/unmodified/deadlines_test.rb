# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/servers"
require "support/shaping_proxy"
require "heddle"

# Clients that do not know Heddle, on real servers that fall silent, stop in the middle of a reply, or send a byte
# every half second: inside Heddle.deadline(1) each gives up, in a task and in a plain thread, and the test says in
# what state it leaves its connection. Its next request gets the right answer: by the same client where it reconnects
# itself, otherwise by a new one.
class DeadlinesTest < Minitest::Test
  include LoopHelpers
  include ShapingProxies

  mode :fiber
  hard_deadline 120

  MODES = %i[fiber thread].freeze
  # The reply stops before its first byte, within its first line, in the middle of its payload.
  SHAPES = {
    silent: {stall_at: 0},
    stalled_in_the_head: {stall_at: 3},
    stalled_in_the_value: {stall_at: 300},
    dripping: {drip: 0.5}
  }.freeze

  # Defines a test for each mode, which tries the ways to fall silent side by side. The block is called for each,
  # while its proxy passes everything; it returns the request that is to fail, and the check of the state afterwards.
  def self.on_each_fault(name, value_at: 300, &body)
    MODES.each do |mode|
      define_method(:"test_#{name}_in_a_#{mode}") do
        in_mode(mode) do |start|
          shapes = SHAPES.merge(stalled_in_the_value: {stall_at: value_at})
          shapes.map do |shape, settings|
            calls = instance_exec(&body)
            proxy = @proxy
            start.call { give_up(shape, proxy, settings, *calls) }
          end.each(&:value)
        end
      end
    end
  end

  on_each_fault "net_http", value_at: 40 do
    require "net/http"
    require "openssl" # see doc/limits.md: a library that loads, and deadlines in several threads
    address = proxied(:load)
    http = Net::HTTP.new(address.host, address.port)
    http.read_timeout = 30
    http.start
    request = -> { http.get("/0").body }
    # It has closed its connection, and opens another for the next request.
    [request, -> { assert_equal http.started?, !request.call.empty? }]
  end

  on_each_fault "dalli" do
    require "dalli"
    require "json"
    address = proxied(:memcached)
    cache = Dalli::Client.new("#{address.host}:#{address.port}",
      socket_timeout: 30, protocol: :meta, serializer: JSON, down_retry_delay: 0)
    cache.set("long", "x" * 600)
    cache.set("other", "right")
    [-> { cache.get("long") }, -> { assert_equal ["right", "x" * 600], [cache.get("other"), cache.get("long")] }]
  end

  on_each_fault "redis_client" do
    require "redis-client"
    address = proxied(:redis)
    redis = RedisClient.config(host: address.host, port: address.port, timeout: 30, reconnect_attempts: 1).new_client
    redis.call("SET", "long", "x" * 600)
    redis.call("SET", "other", "right")
    [-> { redis.call("GET", "long") }, lambda {
      refute_predicate redis, :connected?
      assert_equal "right", redis.call("GET", "other")
    }]
  end

  on_each_fault "trilogy" do
    require "trilogy"
    server = server(:mariadb)
    address = proxied(:mariadb)
    connect = lambda do
      Trilogy.new(host: address.host, port: address.port, username: server.username, password: server.password,
        database: server.database, read_timeout: 30)
    end
    db = connect.call
    [-> { db.query("select repeat('x', 600)").rows }, lambda {
      # It has closed its connection, and does not open another itself.
      assert_raises(Trilogy::EOFError) { db.query("select 1") }
      db.close
      assert_equal [[1]], connect.call.query("select 1").rows
    }]
  end

  on_each_fault "pg" do
    require "pg"
    server = server(:postgresql)
    address = proxied(:postgresql)
    connect = lambda do
      PG.connect(host: address.host, port: address.port, user: server.username, password: server.password,
        dbname: server.database, sslmode: "disable", gssencmode: "disable")
    end
    db = connect.call
    [-> { db.exec("select repeat('x', 600)").values }, lambda {
      # It still waits for the reply: the connection must be closed, or reset.
      assert_includes [PG::PQTRANS_ACTIVE, PG::PQTRANS_UNKNOWN, PG::PQTRANS_INERROR], db.transaction_status
      db.close
      assert_equal [["1"]], connect.call.exec("select 1").values
    }]
  end

  def test_a_thousand_tasks_in_mid_operation
    with_descriptors(2_300, least: 1_100) do |limit|
      ends = Array.new([1000, (limit - 100) / 2].min) { UNIXSocket.pair }
      Heddle.run do
        tasks = assert_within(2, remeasure: 0) do
          ends.map do |reader, writer|
            Heddle.spawn do
              Heddle.deadline(0.3) do # counted from the task's start: all starts take longer on a busy machine
                writer.write("half a rep")
                [reader.readpartial(10), reader.gets]
              end
            end
          end.each(&:wait)
        end
        assert_equal [Heddle::DeadlineExceeded],
          tasks.map { |task| assert_raises(Heddle::DeadlineExceeded) { task.value }.class }.uniq
        ends.each { |_, writer| writer.puts("ly") }
        assert_equal ["ly\n"], ends.map { |reader, _| reader.gets }.uniq
      end
    ensure
      ends&.flatten&.each(&:close)
    end
  end

  private

  def give_up(shape, proxy, settings, request, afterwards)
    refute_nil request.call # all works before
    proxy.shape(**settings)
    start = monotonic
    error = assert_raises(Heddle::DeadlineExceeded, shape) { Heddle.deadline(1) { request.call } }
    took = monotonic - start
    assert_includes 0.99..1.5, took, "#{shape}: #{error.cause.inspect} after #{took.round(3)} s"
    proxy.pass
    assert_within(5, remeasure: 0) { Heddle.deadline(5) { afterwards.call } }
  end

  # The block gets a callable that starts another one beside it.
  def in_mode(mode)
    return yield(method(:in_background)) if mode == :thread

    Heddle.run { yield(Heddle.method(:spawn)) }
  end

  def proxied(name) = @proxy = shaping_proxy(server(name))

  def server(name)
    Servers.public_send(name)
  end
end

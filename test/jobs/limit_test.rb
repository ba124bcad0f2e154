# frozen_string_literal: true

require "test_helper"
require "support/servers"
require "support/interrupt_at_moment"
require "heddle/limit"

# A limit holds across processes, is fair, and loses no permit when callers, processes or Redis fail.
class LimitTest < Minitest::Test
  include InterruptAtMoment

  mode :fiber

  def setup
    @server = Servers.redis
    @url = @server.url
    @redis = RedisClient.new(url: @url)
    @redis.call("FLUSHALL")
    @children = []
  end

  def teardown
    @children&.each do |pid|
      Process.kill(:KILL, pid)
      Process.wait(pid)
    rescue SystemCallError
      nil
    end
    @redis&.close
  end

  def test_concurrent_limits_hold_across_processes
    programs = Array.new(2) do
      child(<<~RUBY)
        Heddle.run do
          30.times do
            Heddle.spawn do
              LIMIT.acquire do
                count = REDIS.call("INCR", "now")
                REDIS.call("EVAL", "if tonumber(ARGV[1]) > tonumber(redis.call('GET', 'most') or 0) then " \
                  "redis.call('SET', 'most', ARGV[1]) end", 0, count)
                sleep 0.003
                REDIS.call("DECR", "now")
                REDIS.call("INCR", "done")
              end
            end
          end
        end
      RUBY
    end
    programs.each { |pid| finish(pid) }
    assert_equal "60", @redis.call("GET", "done")
    assert_equal 3, Integer(@redis.call("GET", "most"))
    assert_equal 0, held
  end

  # A start is seen after Redis has counted it.
  def test_per_second_limits_starts_in_any_second
    rate = limit("rate", per_second: 20)
    starts = []
    began = monotonic
    Heddle.run { 50.times { Heddle.spawn { rate.acquire(timeout: 20) { starts << monotonic - began } } } }
    assert_equal 50, starts.size
    assert_operator starts[20], :>=, 0.99
    assert_operator starts[40], :>=, 1.99
    assert_operator starts.last, :<, stretched(6)
  end

  def test_waiters_get_their_places_in_order
    order = []
    one = limit(concurrent: 1)
    Heddle.run do
      10.times do |number|
        Heddle.spawn { one.acquire { sleep(0.001) && order << number } }
      end
    end
    assert_equal (0..9).to_a, order
  end

  def test_a_process_that_asked_earlier_is_served_earlier
    one = limit(concurrent: 1)
    pid = nil
    one.acquire do
      pid = child('LIMIT.acquire { REDIS.call("RPUSH", "order", "child") }', concurrent: 1)
      wait_until { queue == 1 }
      Thread.new { one.acquire { @redis.call("RPUSH", "order", "parent") } }.tap { wait_until { queue == 2 } }
    end
    finish(pid)
    assert_within(5) { wait_until { @redis.call("LLEN", "order") == 2 } }
    assert_equal %w[child parent], @redis.call("LRANGE", "order", 0, -1)
  end

  def test_threads_without_a_loop
    one = limit(concurrent: 2)
    now = most = 0
    threads = Array.new(8) do
      Thread.new do
        one.acquire do
          most = [most, now += 1].max
          sleep 0.005
          now -= 1
        end
      end
    end
    threads.each(&:join)
    assert_equal 2, most
  end

  # A name that takes long to compare has Ruby switch threads while the thread of the limits looks through all who wait.
  SlowName = Class.new(String) do
    def ==(other)
      sleep(0.005) if Thread.current.name == "heddle limits"
      super
    end
  end
  private_constant :SlowName

  def test_callers_enter_while_many_wait
    busy = limit(SlowName.new("busy"), concurrent: 1)
    other = limit(concurrent: 1)
    Heddle.run do
      busy.acquire do
        crowd = Array.new(10) { Heddle.spawn { busy.acquire { flunk } } }
        wait_until { count(@server, "ZCARD", "busy", "queue") == 10 }
        entering = Array.new(2) { Thread.new { 20.times { other.acquire(timeout: 20) { :in } } } }
        entering.each(&:value)
        crowd.each(&:cancel)
      end
    end
  end

  # Enumerator#next runs the block in a fiber of its own, which nobody continues any more.
  def test_an_enumerator_that_was_dropped_gives_its_place_back
    one = limit(concurrent: 1)
    drop_an_enumerator(one)
    Heddle.run { drop_an_enumerator(one) }
    assert_equal :in, one.acquire(timeout: 10) { :in }
    assert_equal [1, 2], Enumerator.new { |yielder| one.acquire { yielder << 1 << 2 } }.to_a
  end

  def test_the_value_and_the_error_are_the_blocks
    one = limit(concurrent: 1)
    assert_equal :value, one.acquire { :value }
    assert_raises(KeyError) { one.acquire { raise KeyError } }
    assert_equal :thrown, catch(:out) { one.acquire { throw :out, :thrown } }
    assert_equal :next, one.acquire(timeout: 5) { :next }
  end

  def test_a_timeout_a_deadline_and_a_cancel_give_the_claim_back
    one = limit(concurrent: 1)
    Heddle.run do
      one.acquire do
        assert_raises(Heddle::Limit::Exhausted) { one.acquire(timeout: 0.02) { flunk } }
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { one.acquire { flunk } } }
        waiting = Heddle.spawn { one.acquire { flunk } }
        wait_until { queue == 1 }
        waiting.cancel.wait
        wait_until { queue == 0 }
      end
      # Within the permit, too.
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { one.acquire { sleep } } }
      Heddle.spawn { one.acquire { sleep } }.tap { wait_until { held == 1 } }.cancel
      assert_equal :next, one.acquire(timeout: 5) { :next }
    end
    wait_until { held == 0 }
  end

  def test_a_place_of_a_killed_process_expires
    one = limit(concurrent: 1, lease: 0.5)
    holder = child("LIMIT.acquire { sleep }", concurrent: 1, lease: 0.5)
    wait_until { held == 1 }
    waiter = child("LIMIT.acquire { sleep }", concurrent: 1, lease: 0.5)
    wait_until { queue == 1 }
    assert_raises(Heddle::Limit::Exhausted) { one.acquire(timeout: 0.8) { flunk } } # the lease is renewed
    Process.kill(:KILL, waiter)
    Process.kill(:KILL, holder)
    assert_equal :got, one.acquire(timeout: 5) { :got }
  end

  # A process may die while it waits in the line: its claim ends with the lease that it had then.
  def test_a_place_granted_to_a_process_that_died_in_the_line
    @redis.call("ZADD", key("queue"), 0, "dead:1")
    @redis.call("ZADD", key("seen"), redis_time + 300_000, "dead:1")
    assert_equal(:in, limit(concurrent: 1, lease: 60).acquire(timeout: 5) { :in })
  end

  def test_a_process_that_ends_while_a_place_is_held
    pid = child(<<~RUBY)
      Thread.new { LIMIT.acquire { sleep } }
      sleep 0.01 until REDIS.call("ZCARD", "heddle:limit:{x}:held") > 0
    RUBY
    wait_until(60, what: "the end of the process") { Process.wait(pid, Process::WNOHANG) }
    @children.delete(pid)
    assert_predicate $?, :success?
  end

  def test_a_process_that_ends_gives_its_places_back
    pid = child("LIMIT.acquire { }", concurrent: 1, lease: 60)
    finish(pid)
    assert_equal(:in, limit(concurrent: 1, lease: 60).acquire(timeout: 5) { :in })
  end

  def test_a_child_of_fork_leaves_its_parents_place
    one = limit(concurrent: 1)
    one.acquire do
      reader, writer = IO.pipe
      pid = fork do
        # Its own claim waits for the parent's permit; then the child ends within both blocks.
        one.acquire(timeout: 0.1) { exit!(1) }
      rescue Heddle::Limit::Exhausted
        writer.close
        exit(7)
      end
      writer.close
      reader.read
      Process.wait(pid)
      assert_equal 7, $?.exitstatus
      assert_equal 1, held
    end
    wait_until { held == 0 }
  end

  def test_a_redis_that_forgets_its_scripts
    one = limit(concurrent: 1, lease: 0.3)
    one.acquire do
      @redis.call("SCRIPT", "FLUSH")
      sleep 0.5 # the lease is renewed meanwhile
      assert_equal 1, held
      assert_raises(Heddle::Limit::Exhausted) { limit(concurrent: 1, lease: 0.3).acquire(timeout: 0.1) {} }
      @redis.call("SCRIPT", "FLUSH")
    end
    wait_until { held == 0 }
  end

  # A broken connection is the only sign that another Redis may have taken over, without the data.
  def test_a_connection_that_broke_has_all_places_entered_again
    two = Heddle::Limit.new("x", concurrent: 2, lease: 60, redis: {url: @url}) # without a subscription
    two.acquire do
      @redis.pipelined do |pipeline|
        pipeline.call("FLUSHALL")
        pipeline.call("CLIENT", "KILL", "SKIPME", "yes")
      end
      two.acquire(timeout: 5) { wait_until(5) { held == 2 } }
    end
  end

  # A subscription to which nothing is said.
  class Deaf
    def call(*) = nil

    def next_event(seconds) = sleep(seconds) && nil

    def close = nil
  end
  private_constant :Deaf

  def test_messages_that_do_not_arrive
    config = RedisClient.config(url: @url)
    config.define_singleton_method(:new_client) do
      super().tap { |client| client.define_singleton_method(:pubsub) { Deaf.new } }
    end
    deaf = Heddle::Limit.new("x", concurrent: 1, lease: 60, redis: config)
    waiting = nil
    limit(concurrent: 1, lease: 60).acquire do
      waiting = Thread.new { deaf.acquire(timeout: 5) { :in } }
      wait_until { queue == 1 }
    end
    assert_equal :in, waiting.value
  end

  # Asks for events every 50 ms, and says how often Redis was asked for a sign of life.
  class Impatient
    attr_reader :pings

    def initialize(subscription, mute)
      @subscription, @mute, @pings = subscription, mute, 0
    end

    def call(command, *arguments)
      @pings += 1 if command == "PING"
      @subscription.call(command, *arguments) unless @mute && command == "PING"
    end

    def next_event(_) = @subscription.next_event(0.05)

    def close = @subscription.close
  end
  private_constant :Impatient

  # As behind a firewall that has forgotten the connection; then with an end that answers.
  def test_a_subscription_on_which_nothing_arrives_any_more
    [true, false].each do |mute|
      subscriptions = []
      config = RedisClient.config(url: @url)
      config.define_singleton_method(:new_client) do
        client = super()
        client.define_singleton_method(:pubsub) { Impatient.new(super(), mute).tap { |made| subscriptions << made } }
        client
      end
      listening = Heddle::Limit.new("x", concurrent: 1, redis: config)
      Heddle.run do
        limit(concurrent: 1).acquire do
          waiting = Heddle.spawn { listening.acquire { flunk } }
          wait_until(what: "another subscription") { subscriptions.size > 1 } if mute
          wait_until(what: "answers on one subscription") { subscriptions.any? { |one| one.pings > 2 } } unless mute
          waiting.cancel
        end
      end
      assert_operator subscriptions.map(&:pings).max, :<=, 1 if mute
    end
  end

  def in_order_behind_a_loss?
    wait_until { forget_who_waits(lease: 3) }
    wait_until { queue == 1200 } # the next renewal enters them again
    numbers = @redis.call("ZRANGE", key("queue"), 0, -1).map { |permit| Integer(permit[/\d+\z/]) }
    numbers == numbers.sort
  end

  # There are more waiters than one call to Redis takes.
  def test_thousands_of_waiters_are_entered_again_in_order
    one = limit(concurrent: 1, lease: 3)
    Heddle.run do
      one.acquire do
        tasks = Array.new(1200) { Heddle.spawn { one.acquire { nil } } }
        wait_until { queue == 1200 }
        # A loss in the middle of a renewal, which takes several calls, turns their order; the next one does not.
        wait_until(30, what: "the same order") { in_order_behind_a_loss? }
        tasks.drop(2).each(&:cancel)
        wait_until { queue == 2 }
      end
    end
    wait_until { held == 0 }
  end

  # Redis's clock was an hour ahead, and is set right.
  def test_a_clock_that_is_set_back
    both = limit(concurrent: 1, per_second: 1, lease: 0.5)
    dead = child("LIMIT.acquire { sleep }", concurrent: 1, lease: 0.5)
    wait_until { held == 1 }
    Process.kill(:KILL, dead)
    @redis.call("ZADD", key("starts"), redis_time, "dead:1")
    @redis.call("SET", key("clock"), redis_time)
    %w[held seen starts].each do |set|
      @redis.call("ZRANGE", key(set), 0, -1, "WITHSCORES").each do |permit, time|
        @redis.call("ZADD", key(set), time + 3600e6, permit)
      end
    end
    @redis.call("INCRBY", key("clock"), 3_600_000_000)
    assert_equal(:in, both.acquire(timeout: 5) { :in })
  end

  # Another program uses one of its keys, say. The permits of the others are renewed meanwhile.
  def test_a_limit_that_redis_refuses_leaves_the_others_alone
    @redis.call("SET", "heddle:limit:{bad}:held", "a string")
    bad, good = limit("bad", concurrent: 1, lease: 60), limit(concurrent: 1, lease: 0.3)
    error = assert_raises(Heddle::Limit::Unavailable) { bad.acquire { flunk } }
    assert_match(/the limit "bad" cannot be asked for a permit: .*WRONGTYPE/, error.message)
    value = good.acquire(timeout: 5) do
      before = expiry
      wait_until { expiry > before }
      :in
    end
    assert_equal :in, value
  ensure
    @redis.call("DEL", "heddle:limit:{bad}:held")
  end

  def test_servers_named_anew_each_time
    coordinators = -> { Heddle::Limit.const_get(:Coordinator).instance_variable_get(:@coordinators) }
    before = coordinators.call.keys
    3.times do
      Heddle::Limit.new("x", concurrent: 1, redis: RedisClient.config(url: @url)).acquire {}
      last = coordinators.call.values.last
      wait_until { last.instance_variable_get(:@queues).empty? }
      wait_until { limits_thread&.kill.nil? }
    end
    assert_equal 1, (coordinators.call.keys - before).size, "those without permits and thread are forgotten"
  end

  # All leases seem to be over. What runs counts again once it is renewed.
  def test_a_clock_that_jumps_ahead
    one = limit(concurrent: 1, lease: 0.5)
    one.acquire do
      %w[held seen].each do |set|
        @redis.call("ZRANGE", key(set), 0, -1).each { |permit| @redis.call("ZINCRBY", key(set), -3600e6.to_i, permit) }
      end
      @redis.call("INCRBY", key("clock"), -3_600_000_000)
      wait_until { expiry > redis_time }
      assert_raises(Heddle::Limit::Exhausted) { one.acquire(timeout: 0.05) { flunk } }
    end
  end

  def test_no_redis
    nowhere = Heddle::Limit.new("x", concurrent: 1, redis: {host: "127.0.0.1", port: 1})
    error = assert_within(2) { assert_raises(Heddle::Limit::Unavailable) { nowhere.acquire { flunk } } }
    assert_match(/the limit "x" cannot be asked for a permit: .*refused/, error.message)
    assert_kind_of RedisClient::CannotConnectError, error.cause
    assert_raises(TypeError) { Heddle::Limit.new("x", concurrent: "2") }
    assert_raises(ArgumentError) { Heddle::Limit.new("x") }
    assert_raises(ArgumentError) { Heddle::Limit.new("x", per_second: 0) }
    [0, Float::NAN, Float::INFINITY].each do |lease|
      assert_raises(ArgumentError) { Heddle::Limit.new("x", concurrent: 1, lease: lease) }
    end
  end

  def test_broken_connections_fail_nobody
    one = limit(concurrent: 1)
    Heddle.run do
      2.times do
        later = nil
        one.acquire do
          later = Heddle.spawn { one.acquire(timeout: 5) { :later } }
          wait_until { queue == 1 }
          @redis.call("CLIENT", "KILL", "SKIPME", "yes")
        end
        assert_equal :later, later.value
      end
    end
  end

  # What runs, runs on, and counts again in the Redis that has lost all data.
  def test_redis_restarts
    server = Servers::Redis.new.start
    one = Heddle::Limit.new("restarted", concurrent: 1, redis: {url: server.url, timeout: 0.5}, lease: 0.6)
    Heddle.run do
      one.acquire do
        waiting = Heddle.spawn { assert_raises(Heddle::Limit::Unavailable) { one.acquire { flunk } } }
        wait_until { count(server, "ZCARD", "restarted", "queue") == 1 }
        server.stop
        waiting.value
        assert_raises(Heddle::Limit::Unavailable) { one.acquire { flunk } }
        server = Servers::Redis.new(port: server.port).start
        wait_until { count(server, "ZCARD", "restarted", "held") == 1 }
        assert_raises(Heddle::Limit::Exhausted) { one.acquire(timeout: 0.1) { flunk } }
      end
      assert_equal :again, one.acquire(timeout: 5) { :again }
    end
  ensure
    server&.stop
  end

  def test_a_redis_that_hangs
    server = Servers::Redis.new.start
    one = Heddle::Limit.new("hung", concurrent: 1, redis: {url: server.url, timeout: 0.3})
    one.acquire {}
    Process.kill(:STOP, server.pid)
    assert_within(2, remeasure: 0) { assert_raises(Heddle::Limit::Unavailable) { one.acquire { flunk } } }
    Heddle.run do
      ticks = 0
      ticker = Heddle.spawn { loop { sleep(0.002) && ticks += 1 } }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { one.acquire { flunk } } }
      assert_operator ticks, :>, 2
      ticker.cancel
    end
    Process.kill(:CONT, server.pid)
    wait_until do
      one.acquire(timeout: 1) { true }
    rescue Heddle::Limit::Unavailable
      nil
    end
  ensure
    Process.kill(:CONT, server.pid) if server
    server&.stop
  end

  # An exception of another thread at every moment of a call: no permit stays held.
  def test_a_caller_that_is_interrupted_at_every_moment
    one = limit(concurrent: 1)
    moment = 0
    loop do
      where = interrupted_at(moment += 1, %r{heddle/limit}) { one.acquire {} }
      assert_equal :next, one.acquire(timeout: 5) { :next }, "interrupted #{where}"
      break unless where
    end
    assert_operator moment, :>, 20
    wait_until { held == 0 }
  end

  # The caller gets its permit or hears why not; it waits for no thread that has ended.
  def test_its_thread_is_interrupted_before_its_first_line
    one = limit(concurrent: 1)
    %i[kill raise].each do |interrupt|
      limits_thread&.kill&.join
      caller = Thread.new do
        one.acquire { :value }
      rescue Heddle::Limit::Unavailable
        :unavailable
      end
      Thread.pass until (thread = limits_thread)
      thread.public_send(interrupt)
      assert caller.join(stretched(5)), interrupt
      assert_includes %i[value unavailable], caller.value
      wait_until { !thread.alive? } # at its end it refuses all who came meanwhile
      assert_equal(:value, one.acquire(timeout: 5) { :value })
    end
  end

  def test_its_thread_ends_and_starts_again
    one = limit(concurrent: 1)
    2.times do
      assert_equal :in, one.acquire(timeout: 5) { :in }
      limits_thread&.kill&.join
    end
  end

  # The next thread renews what is held.
  def test_its_thread_is_killed_while_a_place_is_held
    one = limit(concurrent: 1, lease: 0.3)
    one.acquire do
      limits_thread.kill.join
      before = expiry
      wait_until { expiry > before }
    end
    wait_until { held == 0 }
  end

  private

  # Mostly for other processes, which take their time to start on a busy machine.
  def wait_until(timeout = 60, **options, &block) = super

  def limit(name = "x", **options) = Heddle::Limit.new(name, redis: @url, **options)

  def limits_thread = Thread.list.find { |thread| thread.name == "heddle limits" }

  def key(part) = "heddle:limit:{x}:#{part}"

  # Redis forgets who waits. Not in the midst of a renewal, which has several calls: its first part would be entered
  # after the rest.
  #
  # @return [Boolean] false when the last renewal was not just now
  def forget_who_waits(lease:)
    @redis.call("EVAL", <<~LUA, 2, key("queue"), key("seen"), lease * 1e6) == 1
      local time = redis.call('TIME')
      local oldest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] - ARGV[1]
      if time[1] * 1e6 + time[2] - oldest > ARGV[1] / 6 then return 0 end -- they come every third of a lease
      redis.call('DEL', KEYS[1], KEYS[2])
      return 1
    LUA
  end

  def redis_time = @redis.call("TIME").then { |seconds, micros| Integer(seconds) * 1_000_000 + Integer(micros) }

  # Objects of this stack that the GC has not found yet are overwritten.
  def drop_an_enumerator(limit)
    Thread.new { assert_equal 1, Enumerator.new { |yielder| limit.acquire { yielder << 1 } }.next }.join
    wait_until(20, what: "the permit") { Array.new(1000) { Object.new } && GC.start.nil? && held.zero? }
  end

  def held = @redis.call("ZCARD", "heddle:limit:{x}:held")

  def queue = @redis.call("ZCARD", "heddle:limit:{x}:queue")

  # When the last permit expires; 0 if none is held.
  def expiry = @redis.call("ZRANGE", key("held"), -1, -1, "WITHSCORES").flatten.last.to_f

  def count(server, command, name, key)
    client = RedisClient.new(url: server.url)
    client.call(command, "heddle:limit:{#{name}}:#{key}")
  ensure
    client&.close
  end

  def child(program, **options)
    options = {concurrent: 3, lease: 15, **options}
    head = <<~RUBY
      require "heddle/limit"
      LIMIT = Heddle::Limit.new("x", redis: #{@url.inspect}, **#{options})
      REDIS = RedisClient.config(url: #{@url.inspect}).new_pool(size: 5)
    RUBY
    load_path = $LOAD_PATH.flat_map { |folder| ["-I", folder] }
    Process.spawn(RbConfig.ruby, *load_path, "-e", head + program).tap { |pid| @children << pid }
  end

  def finish(pid)
    Process.wait(pid)
    @children.delete(pid)
    assert_predicate $?, :success?
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/scripted_memcached"

# Operations of several tasks in flight on one connection. Nobody gets another one's reply, whoever leaves.
class MemcachedSharedConnectionsTest < Minitest::Test
  include ScriptedMemcached

  hard_deadline 60

  # ---- in flight together

  def test_requests_of_many_tasks_are_in_flight_on_a_connection
    with_server do |cache, peers|
      tasks = spawn_gets(cache, *"a".."j")
      peer = peers.pop
      asked = peer.requests(10) # none of which was answered
      assert_equal [*"a".."j"], asked.map(&:key).sort
      peer.answer(*asked)
      assert_equal [*"a".."j"], values(tasks)
      assert_equal [1, 1], connections(cache)
    end
  end

  def test_all_requests_are_sent_by_one_call
    with_server do |cache, peers|
      tasks = spawn_gets(cache, *"a".."j")
      peer = peers.pop
      text = peer.socket.readpartial(64 << 10)
      assert_equal 10, text.count("\n")
      asked = text.lines.map { |line| line.split.then { |verb, key, *more| Server::Request.new(verb, key, more) } }
      peer.answer(*asked)
      assert_equal [*"a".."j"], values(tasks)
    end
  end

  def test_replies_in_pieces
    with_server do |cache, peers|
      tasks = spawn_gets(cache, *"a".."e")
      peer = peers.pop
      text = peer.requests(5).map { |request| peer.reply(request) }.join
      text.each_char do |char|
        peer.socket.write(char)
        sleep(0)
      end
      assert_equal [*"a".."e"], values(tasks)
    end
  end

  def test_every_kind_of_operation
    with_server do |cache, peers|
      operations = {get: -> { cache.get("a") }, set: -> { cache.set("a", "1") }, add: -> { cache.add("a", "1") },
                    incr: -> { cache.incr("7") }, delete: -> { cache.delete("a") }, touch: -> { cache.touch("a", 5) },
                    cas: -> { cache.set("a", "1", cas: 3) }, append: -> { cache.append("a", "2") }}
      tasks = operations.values.map { |operation| Heddle.spawn(&operation) }
      peer = peers.pop
      asked = peer.requests(operations.size)
      assert_equal %w[ma md mg mg ms ms ms ms], asked.map(&:verb).sort
      peer.answer(*asked)
      assert_equal ["a", true, true, 7, true, true, true, true], values(tasks)
    end
  end

  def test_an_idle_connection_comes_before_a_shared_one
    with_server(pool: 3) do |cache, peers|
      tasks = spawn_gets(cache, "a", "b", "c")
      3.times { peers.pop.then { |peer| peer.answer(peer.request) } }
      assert_equal %w[a b c], values(tasks)
      assert_equal [3, 3], connections(cache)
    end
  end

  # The 17th waits until the connection is free.
  def test_only_so_many_are_in_flight
    with_server do |cache, peers|
      keys = Array.new(20) { |n| "k#{n}" }
      tasks = spawn_gets(cache, *keys)
      peer = peers.pop
      first = peer.requests(16)
      assert_nil peer.socket.wait_readable(0.02)
      peer.answer(*first)
      peer.answer(*peer.requests(4))
      assert_equal keys, values(tasks)
      assert_equal 1, peers.size + 1
    end
  end

  def test_those_who_wait_for_a_whole_connection_leave
    with_server do |cache, peers|
      tasks = spawn_gets(cache, "a")
      peer = peers.pop
      asked = peer.requests(1)
      left = [-> { cache.get_multi("b", "c") }, -> { cache.get("d") }].map do |operation|
        Heddle.spawn { answer { Heddle.deadline(0.05) { operation.call } } }
      end
      assert_equal [Heddle::DeadlineExceeded], values(left).map(&:class).uniq
      tasks += spawn_gets(cache, "e")
      assert peer.socket.wait_readable(5), "the connection takes no more"
      peer.answer(*asked, *peer.requests(1))
      assert_equal %w[a e], values(tasks)
    end
  end

  # ---- leaving

  def test_a_task_that_leaves_costs_nobody_else_the_reply
    4.times do |left|
      with_server do |cache, peers|
        tasks = spawn_gets(cache, *"a".."d")
        peer = peers.pop
        asked = peer.requests(4)
        leave(tasks, %w[a b c d].index(asked[left].key))
        peer.answer(*asked)
        others = %w[a b c d] - [asked[left].key]
        assert_equal others, values(tasks.reject { |task| task.status == :cancelled })
        assert_at_rest(cache)
      end
    end
  end

  def test_a_deadline_ends_its_own_operation_only
    with_server do |cache, peers|
      tasks = spawn_gets(cache, "a", "b")
      late = Heddle.spawn { answer { Heddle.deadline(1) { cache.get("late") } } }
      peer = peers.pop
      asked = peer.requests(3)
      assert_kind_of Heddle::DeadlineExceeded, late.value
      peer.answer(*asked)
      assert_equal %w[a b], values(tasks)
      assert_nil server_of(cache).error
    end
  end

  # It has written, and lets the others write. The request of another task is in flight meanwhile, unanswered.
  def test_whoever_is_about_to_send_for_all_leaves
    with_server do |cache, peers|
      tasks = spawn_gets(cache, "first")
      peer = peers.pop
      asked = peer.requests(1)
      gate = Thread::Queue.new
      fiber = nil
      tasks << Heddle.spawn { gate.pop && cache.get("a") }
      Heddle.spawn { gate.pop && fiber.raise(IOError, "interrupted") }
      2.times { gate << true } # they run while the next one lets them
      sends = Heddle.spawn { answer { (fiber = Fiber.current) && cache.get("sends") } }
      assert_equal "interrupted", sends.value.message
      assert peer.socket.wait_readable(5), "the other's request waits for a reply"
      asked += peer.requests(2)
      peer.answer(*asked)
      assert_equal %w[first a], values(tasks)
      assert_at_rest(cache)
    end
  end

  # The client's own limit: the server has not answered in time.
  def test_a_server_that_is_silent
    with_server do |cache, peers|
      cache.send(:time_limit=, 1)
      failures = count_failures(cache)
      tasks = spawn_gets(cache, *"a".."d")
      peer = peers.pop
      peer.requests(4)
      values(tasks).each { |error| assert_kind_of Heddle::DeadlineExceeded, error }
      assert_equal 4, failures.size
      assert_equal [0, 0], connections(cache)
    end
  end

  # Who comes later has a later limit, which must not become that of the reader.
  def test_those_behind_do_not_extend_the_time_limit
    with_server do |cache, peers|
      cache.send(:time_limit=, 0.4)
      ended = Thread::Queue.new
      get = ->(key) { Heddle.spawn { answer { cache.get(key) }.tap { ended << key } } }
      tasks = [get.call("first")]
      peer = peers.pop
      peer.socket.write(peer.reply(peer.request, "." * 50_000)[0, 100])
      while ended.empty?
        tasks << get.call("later") if tasks.size < 4
        sleep 0.05
        peer.socket.write(".")
      end
      assert_equal "first", ended.pop
      values(tasks).each { |error| assert_kind_of Heddle::DeadlineExceeded, error }
    end
  end

  # A connection that owes a reply to nobody takes no more operations, and is closed if the reply does not come.
  def test_a_reply_that_was_given_up_and_does_not_come
    with_server do |cache, peers|
      tasks = spawn_gets(cache, "a", "b")
      peer = peers.pop
      asked = peer.requests(2)
      leave(tasks, %w[a b].index(asked[1].key))
      late = spawn_gets(cache, "c")
      peer.answer(asked[0])
      other = peers.pop
      other.answer(other.request)
      assert_equal %w[c], values(late)
      assert_nil peer.request
      assert_equal [1, 1], connections(cache)
    end
  end

  def test_a_large_value_of_a_task_that_leaves_while_it_comes
    large = "l" * 300_000
    with_server do |cache, peers|
      streams = watch_streams(cache)
      tasks = spawn_gets(cache, "a", "b", "c")
      peer = peers.pop
      asked = peer.requests(3)
      text = peer.reply(asked[0], large)
      half = text.bytesize / 2
      peer.socket.write(text.byteslice(0, half))
      wait_until(what: "a half of the value") { streams.last.statistics[:bytes_received] > half }
      leave(tasks, %w[a b c].index(asked[0].key))
      peer.socket.write(text.byteslice(half..))
      peer.answer(asked[1], asked[2])
      assert_equal %w[a b c] - [asked[0].key], values(tasks.reject { |task| task.status == :cancelled })
      assert_at_rest(cache)
    end
  end

  # It runs in the wait of any fiber, perhaps of one that stands in line itself, and must not wait for that one.
  def test_a_trap_handler_in_a_wait
    result = nil
    script = lambda do |peer|
      peer.greet
      asked = peer.requests(2)
      Process.kill("USR2", Process.pid)
      sleep 0.002 until result == :begun
      peer.answer(*asked)
      while (request = peer.request)
        peer.answer(request)
      end
    end
    Server.play(script) do |server|
      cache = client_of("127.0.0.1:#{server.port}", pool: 1, serializer: :string)
      before = trap("USR2") do
        result = :begun
        result = answer { Heddle.deadline(0.2) { cache.get("handler") } }
      end
      Heddle.run { assert_equal %w[a b], values(spawn_gets(cache, "a", "b")) }
      assert(result == "handler" || result.is_a?(Heddle::DeadlineExceeded), result.inspect)
      assert_at_rest(cache)
    ensure
      trap("USR2", before || "DEFAULT")
    end
  end
end

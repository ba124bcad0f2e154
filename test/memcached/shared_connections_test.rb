# frozen_string_literal: true

require "test_helper"
require "support/collections"
require "support/memcached_helpers"
require "support/scripted_server"

# Operations of several tasks in flight on one connection. Nobody gets another one's reply, whatever happens to those
# before and behind.
class MemcachedSharedConnectionsTest < Minitest::Test
  include MemcachedHelpers
  include Collections

  hard_deadline 60

  # A server whose replies the test writes itself.
  class Server < ScriptedServer
    Request = Struct.new(:verb, :key, :options, :bytes)

    Peer = Struct.new(:socket, :number) do
      def greet
        return unless socket.gets == "version\r\n"

        socket.write("VERSION 1.6.21\r\n")
      end

      # Returns nil at the end of the connection.
      def request
        line = socket.gets or return
        verb, key, *options = line.split
        bytes = socket.read(Integer(options.shift) + 2)[0..-3] if verb == "ms"
        Request.new(verb, key, options, bytes)
      end

      def requests(count) = Array.new(count) { request }

      def fields(request) = request.options.grep(/\A[fO]/).map { |option| (option == "f") ? "f0" : option }.join(" ")

      # The text of a reply: the key's value is the key, unless told otherwise.
      def reply(request, value = request.key)
        return "HD #{fields(request)}\r\n" unless request.options.include?("v")

        "VA #{value.bytesize} #{fields(request)}\r\n#{value}\r\n"
      end

      def answer(*requests) = socket.write(requests.map { |request| reply(request) }.join)

      def close = socket.close
    end
  end

  # Yields, in a run, a client of the server and the queue of the connections that it has accepted.
  def with_server(**options)
    peers = Thread::Queue.new
    script = lambda do |peer|
      peer.greet
      peers << peer
      sleep
    end
    Server.play(script) do |server|
      cache = client_of("127.0.0.1:#{server.port}", pool: 1, serializer: :string, **options)
      Heddle.run { yield cache, peers }
    end
  end

  def answer
    yield
  rescue => error
    error
  end

  # Tasks that each read a key; their values are the values read, or errors.
  def spawn_gets(cache, *keys) = keys.map { |key| Heddle.spawn { answer { cache.get(key) } } }

  def values(tasks) = tasks.map(&:value)

  # The streams that the client opens from now on.
  def watch_streams(cache)
    streams = []
    server_of(cache).define_singleton_method(:connect) { |*limit| super(*limit).tap { |stream| streams << stream } }
    streams
  end

  def server_of(cache) = cache.instance_variable_get(:@servers).first

  def count_failures(cache)
    failures = []
    server_of(cache).define_singleton_method(:failed) do |error|
      failures << error
      super(error)
    end
    failures
  end

  def leave(tasks, left)
    tasks[left].cancel
    wait_until(what: "the task's end") { tasks[left].ended? }
  end

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

  # An operation that needs a connection of its own gets it although others come all the time.
  def test_a_whole_connection_among_those_who_share
    cache = client(pool: 1)
    cache.set_multi({"a" => "1", "b" => "2"})
    done = false
    Heddle.run do
      busy = Array.new(20) { Heddle.spawn { cache.get("a") until done } }
      long = "l" * 100_000
      10.times do
        assert_equal({"a" => "1", "b" => "2"}, cache.get_multi("a", "b"))
        assert cache.set("long", long)
      end
      done = true
      busy.each(&:value)
      assert_equal long, cache.get("long")
    end
    assert_at_rest(cache)
  end

  # memcached 1.6.18 stumbles over requests that do not begin with a record of TLS.
  def test_tls_connections_are_not_shared
    cache = client(:tls, pool: 2)
    cache.set_multi((1..30).to_h { |n| [n.to_s, n] })
    Heddle.run do
      assert_equal [*1..30], (1..30).map { |n| Heddle.spawn { cache.get(n.to_s) } }.map(&:value)
    end
    assert_at_rest(cache)
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

  def test_large_values_among_small_ones
    cache = client(pool: 1, compress: false, serializer: :string)
    sizes = [0, 1, 10_000, 20_000, 70_000, 200_000, 900_000]
    all = sizes.each_with_index.to_h { |size, n| ["k#{n}", n.to_s * size] }
    cache.set_multi(all, raw: true)
    Heddle.run do
      3.times do
        keys = (all.keys * 4).shuffle
        assert_equal all.values_at(*keys), keys.map { |key| Heddle.spawn { cache.get(key) } }.map(&:value)
      end
    end
    assert_at_rest(cache)
  end

  # ---- a connection that ends

  def test_a_lost_connection_is_one_failure
    with_server(failures: 2) do |cache, peers|
      failures = count_failures(cache)
      tasks = spawn_gets(cache, *"a".."j")
      peer = peers.pop
      asked = peer.requests(10)
      peer.answer(*asked.first(3))
      peer.close
      other = peers.pop
      again = other.requests(7)
      assert_equal asked.drop(3).map(&:key).sort, again.map(&:key).sort
      other.answer(*again)
      assert_equal [*"a".."j"], values(tasks)
      assert_equal 1, failures.size
      assert_predicate server_of(cache), :usable?
    end
  end

  # Nobody knows whether the server has counted.
  def test_what_must_not_be_done_twice_is_not
    with_server do |cache, peers|
      counts = Array.new(3) { |n| Heddle.spawn { answer { cache.incr("n#{n}") } } }
      gets = spawn_gets(cache, "a", "b")
      peer = peers.pop
      peer.requests(5)
      peer.close
      other = peers.pop
      again = other.requests(2)
      assert_equal %w[a b], again.map(&:key).sort
      other.answer(*again)
      assert_equal %w[a b], values(gets)
      values(counts).each { |error| assert_kind_of IOError, error }
    end
  end

  # The server may have closed an idle connection. A count that comes after a get must not be sent there, unless the
  # connection was checked.
  def test_a_connection_that_was_closed_while_it_was_idle
    with_server do |cache, peers|
      first = spawn_gets(cache, "a")
      peer = peers.pop
      peer.answer(peer.request)
      assert_equal %w[a], values(first)
      peer.close
      gets = spawn_gets(cache, "a")
      count = Heddle.spawn { answer { cache.incr("7") } }
      other = peers.pop
      asked = [other.request].tap { |all| other.answer(*all) }
      asked << other.request.tap { |request| other.answer(request) }
      assert_equal %w[ma mg], asked.map(&:verb).sort
      assert_equal [["a"], 7], [values(gets), count.value]
    end
  end

  def test_a_reply_to_another_request
    with_server do |cache, peers|
      tasks = spawn_gets(cache, *"a".."d")
      peer = peers.pop
      asked = peer.requests(4)
      peer.answer(asked[0], asked[2], asked[1], asked[3])
      other = peers.pop
      other.answer(*other.requests(3))
      assert_equal [*"a".."d"], values(tasks)
      assert_nil peer.request
    end
  end

  def test_a_server_that_does_not_understand
    with_server do |cache, peers|
      failures = count_failures(cache)
      tasks = spawn_gets(cache, *"a".."d")
      peer = peers.pop
      asked = peer.requests(4)
      peer.socket.write(peer.reply(asked[0]) + "CLIENT_ERROR bad\r\n")
      other = peers.pop
      other.answer(*other.requests(2))
      results = values(tasks)
      refused = results.index { |value| value.is_a?(Heddle::Memcached::ClientError) }
      assert_equal asked[1].key, %w[a b c d][refused]
      assert_equal %w[a b c d] - [asked[1].key], results - [results[refused]]
      assert_empty failures
    end
  end

  def test_an_error_reply_is_its_askers_alone
    with_server do |cache, peers|
      tasks = spawn_gets(cache, *"a".."c")
      peer = peers.pop
      asked = peer.requests(3)
      peer.socket.write("#{peer.reply(asked[0])}SERVER_ERROR out of memory\r\n#{peer.reply(asked[2])}")
      results = values(tasks)
      assert_equal [Heddle::Memcached::ServerError], results.reject { |value| value.is_a?(String) }.map(&:class)
      assert_equal %w[a b c] - [asked[1].key], results.grep(String)
      assert_equal [1, 1], connections(cache)
    end
  end

  def test_a_server_that_sends_too_much
    with_server do |cache, peers|
      tasks = spawn_gets(cache, "a", "b")
      peer = peers.pop
      asked = peer.requests(2)
      peer.socket.write(asked.map { |request| peer.reply(request) }.join + "HD\r\n")
      other = peers.pop
      other.answer(other.request)
      assert_equal %w[a b], values(tasks)
    end
  end

  # ---- opening

  def test_a_server_that_refuses
    port = TCPServer.new("127.0.0.1", 0).then { |server| server.addr[1].tap { server.close } }
    cache = client_of("127.0.0.1:#{port}", pool: 1, failures: 1, retry_after: 60)
    Heddle.run do
      values(spawn_gets(cache, *"a".."h")).each do |error|
        assert(error.is_a?(SystemCallError) || error.is_a?(Heddle::Memcached::NoServerAvailable), error.inspect)
      end
    end
    assert_equal [0, 0], connections(cache)
  end

  # The next one opens the connection.
  def test_the_first_task_leaves_while_it_connects
    listener = TCPServer.new("127.0.0.1", 0)
    cache = client_of("127.0.0.1:#{listener.addr[1]}", pool: 1, serializer: :string)
    Heddle.run do
      tasks = spawn_gets(cache, "a", "b", "c")
      silent = listener.accept
      assert_equal "version\r\n", silent.gets
      leave(tasks, 0)
      peer = Server::Peer.new(listener.accept, 2)
      peer.greet
      peer.answer(*peer.requests(2))
      assert_equal %w[b c], values(tasks.drop(1))
      silent.close
    end
    assert_at_rest(cache)
  ensure
    listener.close
  end

  def test_those_who_wait_for_a_connection_have_a_limit
    with_server(pool_timeout: 0.05) do |cache, peers|
      held = Heddle.spawn { answer { cache.get_multi("a", "b") } }
      peer = peers.pop
      peer.request
      errors = values(spawn_gets(cache, "c", "d"))
      errors.each { |error| assert_match(/no connection to .* became free in time/, error.message) }
      held.cancel
    end
  end

  def test_a_client_that_is_closed
    with_server do |cache, peers|
      keys = Array.new(20) { |n| "k#{n}" }
      tasks = spawn_gets(cache, *keys)
      peer = peers.pop
      asked = peer.requests(16)
      cache.close
      peer.answer(*asked)
      results = values(tasks)
      assert_equal 16, results.grep(String).size
      assert_equal ["the client is closed: make a new one"] * 4, results.grep(IOError).map(&:message)
      assert_equal [0, 0], connections(cache)
    end
  end

  def test_disconnect_lets_operations_end
    with_server do |cache, peers|
      tasks = spawn_gets(cache, "a", "b")
      peer = peers.pop
      asked = peer.requests(2)
      cache.disconnect
      late = spawn_gets(cache, "c")
      peer.answer(*asked)
      other = peers.pop
      other.answer(other.request)
      assert_equal [%w[a b], %w[c]], [values(tasks), values(late)]
    end
  end

  # ---- others

  def test_threads_have_connections_of_their_own
    cache = client(pool: 2, serializer: :string)
    keys = Array.new(30) { |n| "k#{n}" }
    cache.set_multi(keys.to_h { |key| [key, key] })
    runs = Array.new(3) do
      Thread.new do
        Heddle.run do
          keys.map { |key| Heddle.spawn { Array.new(50) { cache.get(key) }.uniq } }.map(&:value)
        end
      end
    end
    plain = Array.new(3) { |n| Thread.new { Array.new(200) { cache.get(keys[n]) }.uniq } }
    runs.each { |run| assert_equal keys.zip, run.value }
    assert_equal keys.first(3).zip, plain.map(&:value)
    assert_at_rest(cache)
  end

  def test_a_child_of_fork
    with_server do |cache, peers|
      tasks = spawn_gets(cache, "a", "b")
      peer = peers.pop
      asked = peer.requests(2)
      child = fork do
        exit!(cache.get("child") == "child")
      rescue
        exit!(false)
      end
      other = peers.pop
      other.answer(other.request)
      assert_predicate Process.wait2(child).last, :success?
      peer.answer(*asked)
      assert_equal %w[a b], values(tasks)
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

  def test_collections_at_each_allocation
    assert_right_under_collections(<<~RUBY, {"PORT" => real_server.port.to_s})
      require "heddle/memcached"
      cache = Heddle::Memcached.new("127.0.0.1:\#{ENV.fetch("PORT")}", pool: 2, timeout: nil, serializer: :string)
      keys = (1..12).map { |n| "gc\#{n}" }
      keys.each { |key| cache.set(key, key * 20) }
      all = lambda do |_ = nil|
        keys.map { |key| Heddle.spawn { [cache.get(key), cache.set(key, key * 20), cache.get(key)] } }
          .map(&:value).each_with_index.map { |got, n| got == [keys[n] * 20, true, keys[n] * 20] }
      end
      2.times(&all)
      stress(true) { all.call }
    RUBY
  end

  # Whatever ends their neighbours, tasks read the values of their own keys.
  def test_cancels_and_deadlines_at_random
    cache = client(pool: 2, serializer: :string, compress: false)
    keys = Array.new(40) { |n| "k#{n}" }
    text = ->(key) { key * ((key.hash % 5).zero? ? 20_000 : 10) }
    keys.each { |key| cache.set(key, text.call(key)) }
    random = Random.new(7)
    right = 0
    Heddle.run do
      400.times do
        tasks = keys.sample(random.rand(5..40), random: random).map do |key|
          limit = (random.rand < 0.3) ? random.rand * 0.002 : nil
          Heddle.spawn do
            value = Heddle.deadline(limit) { cache.get(key) }
            raise "#{key} got #{value[0, 20]}" unless value == text.call(key)

            right += 1
          rescue Heddle::DeadlineExceeded
            nil
          end
        end
        tasks.sample(3, random: random).each(&:cancel) if random.rand < 0.5
        tasks.each(&:wait)
        tasks.each { |task| raise task.error if task.status == :failed }
      end
    end
    assert_operator right, :>, 1000
    assert_at_rest(cache)
  end
end

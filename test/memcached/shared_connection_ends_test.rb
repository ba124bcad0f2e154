# frozen_string_literal: true

require "test_helper"
require "support/scripted_memcached"

# Connections that several tasks share are opened, fail, and are closed: each task learns its own fate.
class MemcachedSharedConnectionEndsTest < Minitest::Test
  include ScriptedMemcached

  hard_deadline 60

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

  def test_those_who_wait_for_a_connect_are_told_so
    listener = TCPServer.new("127.0.0.1", 0)
    cache = client_of("127.0.0.1:#{listener.addr[1]}", pool: 1, pool_timeout: 0.05)
    Heddle.run do
      tasks = spawn_gets(cache, "a", "b")
      told = tasks[1].value.message
      assert_match(/no connection to .* was open in time: another operation.* is still connecting/, told)
      tasks[0].cancel
    end
    assert_at_rest(cache)
  ensure
    listener.close
  end

  # It waits for what is left of its own time.
  def test_the_one_that_waits_for_the_pool_leaves
    with_server(pool_timeout: 2) do |cache, peers|
      held = Heddle.spawn { answer { cache.get_multi("a", "b") } }
      peers.pop.request
      assert_within(2.6, at_least: 2) do
        tasks = spawn_gets(cache, "c", "d")
        sleep(1.2)
        leave(tasks, 0)
        assert_match(/all of them are in use/, tasks[1].value.message)
      end
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
end

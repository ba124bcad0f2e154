# frozen_string_literal: true

require "test_helper"
require "support/async_loops"

# async-http as client and server at once, on loopback.
class AsyncHTTPTest < Minitest::Test
  mode :fiber

  def setup
    %w[async/http async/http/server async/http/client async/http/endpoint].each { |path| require path }
    @level = Console.logger.level
    Console.logger.off!
  end

  def teardown
    Console.logger.level = @level if @level
  end

  AsyncLoops::ALL.each do |loop|
    define_method(:"test_requests_#{loop}") do
      AsyncLoops.run(loop) do |task|
        serving(task) do |client, served|
          bodies = Array.new(50) { |i| task.async { client.get("/#{i}").read } }.map(&:wait)
          assert_equal Array.new(50) { |i| "you asked for /#{i}" }, bodies
          assert_equal "x" * 300_000, client.post("/echo", {}, ["x" * 100_000] * 3).read
          assert_equal 51, served.size
        end
      end
    end

    define_method(:"test_timeouts_and_stops_#{loop}") do
      AsyncLoops.run(loop) do |task|
        serving(task) do |client, _|
          assert_raises(Async::TimeoutError) { task.with_timeout(0.02) { client.get("/slow").read } }
          stopped = task.async { client.get("/slow").read }
          sleep(0.01)
          stopped.stop
          assert_equal "you asked for /after", client.get("/after").read
        end
      end
    end
  end

  # Each piece arrives before the next one is sent: neither side collects a body.
  def test_bodies_that_stream_both_ways
    require "protocol/http/body/writable"
    AsyncLoops::ALL.each do |loop|
      AsyncLoops.run(loop) do |task|
        serving(task) do |client, _|
          body = Protocol::HTTP::Body::Writable.new
          body.write("first")
          response = client.post("/stream", {}, body)
          assert_equal "first", response.body.read, loop
          body.write("second")
          assert_equal "second", response.body.read, loop
          body.close_write
          assert_nil response.body.read, loop
        end
      end
    end
  end

  def test_bodies_that_are_compressed_or_rewound
    %w[rewindable deflate inflate].each { |name| require "protocol/http/body/#{name}" }
    text = "heddle " * 50_000
    AsyncLoops::ALL.each do |loop|
      AsyncLoops.run(loop) do |task|
        serving(task) do |client, _|
          body = Protocol::HTTP::Body::Rewindable.new(Protocol::HTTP::Body::Buffered.wrap([text]))
          2.times do # sent again
            sent = Protocol::HTTP::Body::Deflate.for(body)
            answer = Protocol::HTTP::Body::Inflate.for(client.post("/stream", {}, sent).body)
            assert_equal text, answer.join, loop
            body.rewind
          end
        end
      end
    end
  end

  # Lines of tasks, and of threads beside them: none is lost, torn or attributed to another task.
  def test_logs_of_tasks_and_threads
    log = Struct.new(:lines) { def call(subject, *, **) = lines << [subject, Thread.current] }.new(Thread::Queue.new)
    AsyncLoops::ALL.each do |loop|
      AsyncLoops.run(loop) do |task|
        logger = Console::Logger.new(log)
        tasks = Array.new(20) do |i|
          task.async { 10.times { |n| logger.info([i, n, Fiber.current.object_id]) && sleep(0.0001) } }
        end
        threads = Array.new(2) { |i| Thread.new { 100.times { |n| logger.info([20 + i, n, 0]) } } }
        [*tasks, *threads].each { |one| one.respond_to?(:wait) ? one.wait : one.join }
      end
      lines = Array.new(log.lines.size) { log.lines.pop }.map(&:first).group_by(&:first)
      assert_equal 22, lines.size
      lines.each do |i, those|
        assert_equal Array.new((i < 20) ? 10 : 100) { |n| n }, those.map { |line| line[1] }, loop
        assert_equal 1, those.map(&:last).uniq.size, loop
      end
    end
  end

  def test_a_deadline_of_heddles_ends_a_request
    Heddle.run do
      Sync do |task|
        serving(task) do |client, _|
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { client.get("/slow").read } }
          assert_equal "you asked for /after", client.get("/after").read
        end
      end
    end
  end

  # The reader of an HTTP/2 connection serves all requests, whichever request has opened the connection.
  def test_a_deadline_does_not_reach_a_shared_connection
    AsyncLoops::HEDDLE.each do |loop|
      AsyncLoops.run(loop) do |task|
        serving(task, protocol: Async::HTTP::Protocol::HTTP2) do |client, served, slow|
          interrupted = nil
          Heddle.deadline(1) do
            assert_equal "you asked for /first", client.get("/first").read
            interrupted = task.async { sleep }
          end
          others = Array.new(3) { task.async { client.get("/slow").read } }
          assert_raises(Heddle::DeadlineExceeded) { interrupted.wait }
          wait_until { served.size == 4 }
          slow.close
          assert_equal ["you asked for /slow"] * 3, others.map(&:wait), loop
        end
      end
    end
  end

  # The end of the answer arrives within the close, unless that waits for a write of the connection's reader.
  def test_an_unread_answer_is_closed
    AsyncLoops::HEDDLE.each do |loop|
      AsyncLoops.run(loop) do |task|
        serving(task, protocol: Async::HTTP::Protocol::HTTP2) do |client, _|
          10.times do |i|
            client.get("/#{i}").close
            client.close
          end
        end
      end
    end
  end

  private

  def serving(task, protocol: Async::HTTP::Protocol::HTTP1)
    socket = TCPServer.new("127.0.0.1", 0)
    endpoint = Async::HTTP::Endpoint.parse("http://127.0.0.1:#{socket.local_address.ip_port}", protocol: protocol)
    socket.close
    served = []
    slow = Thread::Queue.new
    server = Async::HTTP::Server.for(endpoint, protocol: protocol) do |request|
      served << request.path
      slow.pop if request.path == "/slow" # stopping a server does not stop what it answers
      next Protocol::HTTP::Response[200, {}, request.body] if request.path == "/stream"

      body = (request.path == "/echo") ? request.body.join : "you asked for #{request.path}"
      Protocol::HTTP::Response[200, {}, [body]]
    end
    running = task.async { server.run }
    client = Async::HTTP::Client.new(endpoint)
    yield client, served, slow
  ensure
    client&.close
    running&.stop
    slow&.close
  end
end

# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/quiet_async"
require "support/async_http_server"

# Programs of Async's world, unmodified, each under load and through a stop in the middle: on Async's own loop, and on
# Heddle's. Ruby 3.1 has older versions of them.
class AsyncProgramsTest < UnmodifiedTestCase
  include QuietAsync

  TASKS = 40
  LOST = [IOError, SystemCallError].freeze # what a client sees when its server ends

  # A test for each loop, on the Rubies for which the Gemfile has the library. The block gets the task in which it runs.
  def self.on_each_loop(name, from: "3.1", &body)
    return if from > RUBY_VERSION

    AsyncLoops::ALL.each do |loop|
      define_method(:"test_#{name.tr(" ", "_")}_#{loop}") do
        AsyncLoops.run(loop) { |task| instance_exec(task, &body) }
      end
    end
  end

  # ---- async-websocket

  %w[http/1.1 h2].each do |protocol|
    on_each_loop "websockets over #{protocol.tr("/.", " ")}" do |task|
      require "async/websocket/client"
      require "async/websocket/server"
      require "async/websocket/adapters/http" # which the server of 0.30.0 does not load
      closed = 0
      chat = Async::WebSocket::Server.new(Protocol::HTTP::Middleware::NotFound) do |connection|
        while (message = connection.read)
          connection.write("echo #{message.buffer}")
          connection.flush
        end
      ensure
        closed += 1
      end
      AsyncHTTPServer.run(task, chat, protocol) do |endpoint|
        client = Async::WebSocket::Client.open(endpoint)
        # One after another: protocol-http2 refuses some of many requests at once, on Async's own loop.
        connections = Array.new(TASKS) { client.connect(endpoint.authority, endpoint.path) }
        clients = connections.each_with_index.map { |connection, i| task.async { converse(connection, i) } }
        clients.each_with_index { |talk, i| assert_equal Array.new(5) { |n| "echo #{i}.#{n}" }, talk.wait }
        next if protocol == "h2" # there, a stop or a timeout leaves the server's side open, on Async's own loop

        reads = false
        waiting = task.async { connected(client, endpoint) { |connection| (reads = true) && connection.read } }
        wait_until(what: "the wait for a message") { reads }
        waiting.stop
        assert_raises(Async::TimeoutError) do
          connected(client, endpoint) { |connection| task.with_timeout(0.01) { connection.read } }
        end
        after = client.connect(endpoint.authority, endpoint.path)
        assert_equal Array.new(5) { |n| "echo after.#{n}" }, converse(after, "after")
        wait_until(what: "the end of all connections") { closed == TASKS + 3 }
      ensure
        client&.close
      end
    end
  end

  # A server that says goodbye to its clients closes connections at which its own tasks wait.
  on_each_loop "websockets whose server stops" do |task|
    require "async/websocket/client"
    require "async/websocket/server"
    require "async/websocket/adapters/http"
    talking = []
    chat = Async::WebSocket::Server.new(Protocol::HTTP::Middleware::NotFound) do |connection|
      talking << connection
      connection.read
    end
    AsyncHTTPServer.run(task, chat, "http/1.1") do |endpoint|
      clients = Array.new(TASKS) do
        task.async do
          Async::WebSocket::Client.connect(endpoint) { |connection| connection.read }
        rescue *LOST, Protocol::WebSocket::ClosedError => error
          error.class
        end
      end
      wait_until(what: "all clients") { talking.size == TASKS }
      talking.each { |connection| connection.close }
      clients.each { |client| assert_within(5, remeasure: 0) { client.wait } }
    end
  end

  # ---- async-redis

  on_each_loop "Redis under load" do |task|
    client = redis
    numbers = Array.new(TASKS) do |i|
      task.async do
        client.pipeline do |pipeline|
          10.times { |n| pipeline.set("key #{i} #{n}", "value #{i} #{n}") }
          10.times { |n| pipeline.get("key #{i} #{n}") }
          pipeline.collect.last(10)
        end
      end
    end
    numbers.each_with_index { |values, i| assert_equal Array.new(10) { |n| "value #{i} #{n}" }, values.wait }
    assert_equal "value 3 4", client.get("key 3 4")
  ensure
    client&.close
  end

  on_each_loop "Redis and blocking pops" do |task|
    client = redis
    popped = Array.new(TASKS) { |i| task.async { client.call("BLPOP", "list #{i}", 10) } }
    wait_until(what: "the wait of all tasks") { blocked(client) == TASKS }
    popped.each_index { |i| task.async { client.call("RPUSH", "list #{i}", i.to_s) } }
    popped.each_with_index { |pop, i| assert_equal(["list #{i}", i.to_s], pop.wait) }
  ensure
    client&.close
  end

  on_each_loop "Redis and blocking pops that are stopped" do |task|
    client = redis
    if Gem.loaded_specs["protocol-redis"].version < Gem::Version.new("0.13")
      skip "this protocol-redis gives the answer of a stopped call to the next one"
    end
    popped = Array.new(TASKS) { task.async { client.call("BLPOP", "list", 10) } }
    wait_until(what: "the wait of all tasks") { blocked(client) == TASKS }
    popped.each(&:stop)
    # Nothing waits here for the server's notice of the end.
    assert_raises(Async::TimeoutError) { task.with_timeout(0.01) { client.call("BLPOP", "list", 10) } }
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.01) { client.call("BLPOP", "list", 10) } } if heddle?
    client.call("RPUSH", "list", "no stopped pop takes it")
    assert_equal "no stopped pop takes it", client.call("LPOP", "list")
  ensure
    client&.close
  end

  on_each_loop "Redis and subscriptions" do |task|
    client = redis
    heard = Array.new(TASKS) do
      task.async { client.subscribe("news") { |context| Array.new(6) { context.listen&.last }.drop_while(&:nil?) } }
    end
    endless = task.async { client.subscribe("news") { |context| context.each {} } }
    wait_until(what: "all subscriptions") { client.call("PUBSUB", "NUMSUB", "news").last == TASKS + 1 }
    6.times { |i| client.publish("news", i.to_s) }
    heard.each { |messages| assert_equal %w[0 1 2 3 4 5], messages.wait }
    endless.stop
    wait_until(what: "the end of all subscriptions") { client.call("PUBSUB", "NUMSUB", "news").last == 0 }
  ensure
    client&.close
  end

  on_each_loop "Redis that starts again" do |task|
    require "async/redis"
    running = Servers::Redis.new.start
    client = Async::Redis::Client.new(Async::Redis::Endpoint.parse(running.url))
    pops = Array.new(TASKS) do
      task.async do
        client.call("BLPOP", "list", 30)
      rescue *LOST => error
        error.class
      end
    end
    wait_until(what: "the wait of all tasks") { blocked(client) == TASKS }
    running.stop
    pops.each { |pop| assert_kind_of Class, assert_within(5) { pop.wait } }
    assert_raises(*LOST) { 3.times { client.call("PING") } }
    running = Servers::Redis.new(port: running.port).start
    answers = Array.new(TASKS) { task.async { answer(client) } }
    answers.each { |answer| assert_equal "PONG", answer.wait }
  ensure
    client&.close
    running&.stop
  end

  # ---- async-job with its queue in Redis

  on_each_loop "jobs that are stopped in the middle", from: "3.2" do |task|
    require "async/job"
    require "async/job/processor/redis"
    client = redis
    names = {"plain" => 60, "fails" => 10, "late" => 10, "long" => 10}
      .flat_map { |kind, count| Array.new(count) { |i| "#{kind} #{i}" } }
    runs = Hash.new(0)
    done = []
    later = Time.now + 0.3
    work = proc do |job|
      name = job["name"]
      sleep(0.002)
      runs[name] += 1
      raise IOError, "the first time" if name.start_with?("fails") && runs[name] == 1
      sleep if name.start_with?("long") && runs[name] == 1
      assert_operator Time.now, :>=, later if name.start_with?("late")
      done << name
    end
    worker = task.async { job_queue(work) { |queue| names.each { |name| enqueue(queue, name, later) } } }
    wait_until(what: "all but the long jobs") { done.size == 80 && runs.size == 90 }
    worker.stop
    # async-job's server takes the jobs of a worker whose heartbeat is overdue: as if its time had passed.
    wait_until(what: "the end of its blocking pop") { blocked(client) == 0 }
    client.call("DEL", *client.call("KEYS", "jobs:processing:*").grep_v(/pending/))
    assert_empty done.grep(/long/)
    worker = task.async { job_queue(work) {} }
    wait_until(what: "all jobs") { done.size == names.size }
    assert_equal names.sort, done.sort
    assert_equal 2, runs["fails 3"]
    wait_until(what: "an empty queue") { client.call("KEYS", "jobs:*").grep(/ready|pending|jobs:jobs|delayed/).empty? }
  ensure
    worker&.stop
    client&.close
  end

  # ---- an LLM client, by Faraday and Net::HTTP

  on_each_loop "language models that stream", from: "3.2" do |task|
    require "ruby_llm"
    require "heddle/net_http"
    Heddle::NetHTTP.disable
    begun = gone = 0 # of the endless ones
    model = proc do |request|
      endless = request.read.include?("endless")
      begun += 1 if endless
      words = endless ? (1..) : (1..5)
      body = Protocol::HTTP::Body::Writable.new
      task.async do
        words.each do |word|
          choice = {index: 0, delta: {content: "#{word} "}}
          body.write("data: #{JSON.generate(id: "1", model: "m", choices: [choice])}\n\n")
          sleep(0.001)
        end
        body.write("data: [DONE]\n\n")
        body.close_write
      rescue
        gone += 1
      end
      Protocol::HTTP::Response[200, {"content-type" => "text/event-stream"}, body]
    end
    AsyncHTTPServer.run(task, model) do |endpoint|
      context = RubyLLM.context do |configuration|
        configuration.ollama_api_base = "#{endpoint.url}v1"
        configuration.max_retries = 0
      end
      [*(:accelerated if heddle?), :plain].each do |http|
        Heddle::NetHTTP.enable if http == :accelerated
        chats = Array.new(TASKS) { |i| task.async { said(context, "question #{i}").join } }
        chats.each { |chat| assert_equal "1 2 3 4 5 ", chat.wait }
        heard = []
        stopped = task.async { said(context, "endless", heard) }
        wait_until(what: "some words") { heard.size > 5 }
        stopped.stop
        heard.clear
        until heard.any? # a busy machine may take all the time for the request
          assert_raises(Async::TimeoutError) { task.with_timeout(0.05) { said(context, "endless", heard) } }
        end
        assert_equal "1 2 3 4 5 ", said(context, "after").join
      ensure
        Heddle::NetHTTP.disable
      end
      wait_until(what: "the server's notice of all clients that left") { gone == begun }
    end
  end

  # ---- async-http's client for many hosts

  on_each_loop "the internet" do |task|
    require "async/http/internet"
    app = proc do |request|
      body = Protocol::HTTP::Body::Writable.new
      task.async do
        chunks = request.path.start_with?("/endless") ? (1..) : (1..3)
        chunks.each { |i| body.write("#{request.path} #{i};") && sleep(0.001) }
        body.close_write
      rescue
        nil
      end
      Protocol::HTTP::Response[200, {}, body]
    end
    AsyncHTTPServer.run(task, app) do |one|
      AsyncHTTPServer.run(task, app) do |other|
        internet = Async::HTTP::Internet.new
        bodies = Array.new(TASKS) do |i|
          task.async { internet.get("#{(i.even? ? one : other).url}#{i}", &:read) }
        end
        bodies.each_with_index { |body, i| assert_equal "/#{i} 1;/#{i} 2;/#{i} 3;", body.wait }
        received = 0
        endless = task.async { internet.get("#{one.url}endless") { |response| response.each { received += 1 } } }
        wait_until(what: "some chunks") { received > 3 }
        endless.stop
        assert_equal "/after 1;/after 2;/after 3;", internet.get("#{one.url}after", &:read)
      ensure
        internet&.close
      end
    end
  end

  private

  def connected(client, endpoint)
    connection = client.connect(endpoint.authority, endpoint.path)
    yield connection
  ensure
    connection&.close
  end

  def converse(connection, name)
    Array.new(5) do |n|
      connection.write("#{name}.#{n}")
      connection.flush
      connection.read.to_str
    end
  ensure
    connection.close
  end

  # What the model said to one question.
  def said(context, question, words = [])
    chat = context.chat(model: "m", provider: :ollama, assume_model_exists: true)
    chat.ask(question) { |chunk| words << chunk.content if chunk.content }
    words
  end

  # Runs a queue of jobs until its task is stopped.
  def job_queue(work)
    delegate = Struct.new(:work) do
      def call(job) = work.call(job)

      def start = nil

      def stop = nil
    end
    endpoint = Async::Redis::Endpoint.parse(server(:redis).url)
    queue = Async::Job::Builder.build(delegate.new(work)) do
      dequeue Async::Job::Processor::Redis, endpoint: endpoint, prefix: "jobs", resolution: 0.02
    end
    yield queue
    queue.start
    sleep
  ensure
    queue&.stop
  end

  def enqueue(queue, name, later)
    queue.call({"name" => name, **(name.start_with?("late") ? {"scheduled_at" => later} : {})})
  end

  def redis
    require "async/redis"
    client = Async::Redis::Client.new(Async::Redis::Endpoint.parse(server(:redis).url))
    client.call("FLUSHALL")
    client
  end

  def blocked(client) = client.call("INFO", "clients")[/^blocked_clients:(\d+)/, 1].to_i

  # A connection of the pool's may be one that the old server closed.
  def answer(client)
    tries ||= TASKS
    client.call("PING")
  rescue *LOST
    ((tries -= 1) > 0) ? retry : raise
  end

  def heddle? = Fiber.scheduler.respond_to?(:backend)
end

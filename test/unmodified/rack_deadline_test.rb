# frozen_string_literal: true

require "test_helper"
require "heddle/rack/deadline"
require "net/http"
require "puma"
require "puma/server"
require "puma/log_writer"

# Heddle::Rack::Deadline in plain threads, in tasks and in Puma.
class RackDeadlineTest < Minitest::Test
  mode :thread

  WORLDS = {thread: :call.to_proc, task: ->(work) { Heddle.run { work.call } }}.freeze

  Body = Struct.new(:closed) do
    def each = yield("body")

    def close = self.closed = true
  end

  def test_a_request_in_time
    each_world { assert_equal [200, {}, ["/a"]], call(->(env) { [200, {}, [env["PATH_INFO"]]] }, 5) }
  end

  def test_a_request_that_waits_too_long
    each_world do
      status, headers, body = assert_within(5, at_least: 0.05) { call(->(_) { sleep(30) }, 0.05) }
      assert_equal [503, {"content-type" => "text/plain"}], [status, headers]
      assert_equal "This request took longer than 0.05 s.\n", body.each.to_a.join
    end
  end

  # As Rails' middleware that shows errors does.
  def test_an_application_that_rescues_the_error
    each_world do
      body = Body.new
      app = lambda do |_|
        sleep(30)
      rescue
        [500, {}, body]
      end
      assert_equal 503, call(app, 0.05).first
      assert body.closed, "what its middleware gives back when the body is closed was not given back"
    end
  end

  # A task writes it, as under falcon, also one that another task has started, or one of a pool that had to wait.
  def test_a_body_that_a_task_writes_after_the_response
    pool = Heddle::FiberPool.new(1)
    bodies = Array.new(3) { Thread::Queue.new }
    app = lambda do |_|
      write = lambda do |body|
        sleep 0.6
        body << Heddle.remaining
        raise IOError, "the client has gone"
      rescue => error
        body << error.class
      end
      Heddle.spawn { write.call(bodies[0]) }
      Heddle.spawn { Heddle.spawn { write.call(bodies[1]) } }
      pool.spawn { sleep(0.1) }
      pool.spawn { write.call(bodies[2]) }
      [200, {}, bodies]
    end
    Heddle.run do
      assert_equal 200, call(app, 0.5).first
      assert_equal [[nil, IOError]] * 3, bodies.map { |body| [body.pop, body.pop] }
    end
  end

  def test_other_deadlines_bind_a_task_that_outlives_its_request
    Heddle.run do
      Heddle.deadline(20) do
        outer = inner = nil
        app = lambda do |_|
          outer = Heddle.spawn { sleep(0.02) && Heddle.remaining }
          inner = Heddle.deadline(0.04) { Heddle.spawn { sleep } }
          [200, {}, []]
        end
        assert_equal 200, call(app, 5).first
        assert_in_delta 20, outer.value, 10
        assert_raises(Heddle::DeadlineExceeded) { inner.value }
      end
    end
  end

  def test_tasks_of_a_request_that_takes_too_long_end_with_it
    Heddle.run do
      task = nil
      app = ->(_) { (task = Heddle.spawn { sleep }) && sleep }
      assert_equal 503, call(app, 0.05).first
      assert_raises(Heddle::DeadlineExceeded) { task.value }
    end
  end

  def test_a_shorter_deadline_of_the_applications_own
    each_world do
      assert_raises(Heddle::DeadlineExceeded) { call(->(_) { Heddle.deadline(0.02) { sleep(30) } }, 20) }
      rescued = lambda do |_|
        Heddle.deadline(0.02) { sleep(30) }
      rescue Heddle::DeadlineExceeded
        [204, {}, []]
      end
      assert_equal 204, call(rescued, 20).first
    end
  end

  def test_other_errors_leave
    each_world { assert_raises(KeyError) { call(->(_) { raise KeyError }, 5) } }
  end

  def test_invalid_times
    [0, -1, nil, "2"].each do |seconds|
      error = assert_raises(ArgumentError) { Heddle::Rack::Deadline.new(:app, seconds) }
      assert_includes error.message, "not #{seconds.inspect}"
    end
  end

  def test_puma
    app = lambda do |env|
      sleep(30) if env["PATH_INFO"] == "/slow"
      [200, {}, ["in time"]]
    end
    puma = Puma::Server.new(Heddle::Rack::Deadline.new(app, 0.1), nil, min_threads: 2, max_threads: 2,
      log_writer: Puma::LogWriter.null)
    port = puma.add_tcp_listener("127.0.0.1", 0).local_address.ip_port
    puma.run
    get = ->(path) { Net::HTTP.get_response(URI("http://127.0.0.1:#{port}#{path}")) }
    assert_within(5) do
      slow = Array.new(4) { Thread.new { get.call("/slow").code } }
      assert_equal %w[503] * 4, slow.map(&:value)
    end
    assert_equal "in time", get.call("/").body # in a thread whose last request was ended
  ensure
    puma&.stop(true)
  end

  private

  def each_world
    WORLDS.each_value { |world| world.call(-> { yield }) }
  end

  def call(app, seconds) = Heddle::Rack::Deadline.new(app, seconds).call("PATH_INFO" => "/a")
end

# frozen_string_literal: true

require "test_helper"
require "heddle/rack/deadline"
require "heddle/deadline_header"
require "logger"
require "net/http"
require "puma"
require "rack"
require "rack/timeout/base"
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
      assert_equal [503, {"content-type" => "text/plain", "retry-after" => "1"}], [status, headers]
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

  def test_an_application_that_rescues_the_error_of_its_tasks
    app = lambda do |_|
      Heddle.map(1..3) { sleep(30) }
    rescue
      [500, {}, []]
    end
    each_world { assert_equal 503, call(app, 0.05).first }
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

  def test_the_log_says_where_a_request_waited
    each_world do
      [["rack.errors", StringIO.new, :itself], ["rack.logger", Logger.new(lines = StringIO.new), ->(_) { lines }]]
        .each do |name, log, lines_of|
          env = {"REQUEST_METHOD" => "GET", "PATH_INFO" => "/slow", name => log}
          assert_equal 503, Heddle::Rack::Deadline.new(->(_) { sleep(30) }, 0.02).call(env).first
          assert_match(%r{GET /slow took longer than 0\.02 s: .+\(#{Regexp.escape(__FILE__)}:\d+:in},
            lines_of.to_proc.call(log).string)
        end
    end
  end

  # The shortest counts, and none makes the time longer.
  def test_headers_of_the_request
    {"0.5" => 0.5, " 7 " => 5, "0" => 0, "-1" => 5, "1e3" => 5, "soon" => 5, "9" * 400 => 5}.each do |value, seconds|
      assert_bounded seconds, "HTTP_REQUEST_TIMEOUT" => value
    end
    {"500m" => 0.5, "2S" => 2, "1M" => 5, "3H" => 5, "400000u" => 0.4, "90000000n" => 0.09, "5" => 5, "123456789n" => 5,
     "S" => 5}.each { |value, seconds| assert_bounded seconds, "HTTP_GRPC_TIMEOUT" => value }
    {"500" => 0.5, "250.5" => 0.2505, "99999999" => 5, "" => 5}.each do |value, seconds|
      assert_bounded seconds, "HTTP_X_ENVOY_EXPECTED_RQ_TIMEOUT_MS" => value
    end
    now = Time.now.to_f
    assert_bounded 2, "HTTP_X_REQUEST_DEADLINE" => format("%.3f", now + 2)
    assert_bounded 5, "HTTP_X_REQUEST_DEADLINE" => format("%.3f", now + 200)
    assert_bounded 0, "HTTP_X_REQUEST_DEADLINE" => format("%.3f", now - 1)
    assert_bounded 1, "HTTP_X_ENVOY_EXPECTED_RQ_TIMEOUT_MS" => "3000", "HTTP_GRPC_TIMEOUT" => "1S"
  end

  def test_headers_count_where_the_program_says_so
    left = ->(_) { [200, {}, [Heddle.remaining]] }
    response = Heddle::Rack::Deadline.new(left, 50, headers: true).call("HTTP_REQUEST_TIMEOUT" => "20")
    assert_in_delta 10, response.last.first, 10
    response = Heddle::Rack::Deadline.new(left, 50, headers: true).call("HTTP_REQUEST_TIMEOUT" => "0")
    assert_equal 503, response.first
    response = Heddle::Rack::Deadline.new(left, 5).call("HTTP_REQUEST_TIMEOUT" => "1")
    assert_in_delta 5, response.last.first, 0.9
  end

  def test_requests_without_a_deadline
    left = ->(_) { [200, {}, [Heddle.remaining]] }
    exports = ->(env) { env["PATH_INFO"] == "/exports" }
    [{"HTTP_UPGRADE" => "websocket"}, {"HTTP_ACCEPT" => "text/html, text/event-stream"}, {"PATH_INFO" => "/exports"}]
      .each { |env| assert_equal [200, {}, [nil]], Heddle::Rack::Deadline.new(left, 5, except: exports).call(env) }
    error = assert_raises(ArgumentError) { Heddle::Rack::Deadline.new(left, 5, except: "/exports") }
    assert_includes error.message, "except:"
  end

  # A calls B, and B calls C: once A has given up, C stops.
  def test_a_deadline_travels_from_server_to_server
    ended = Thread::Queue.new
    last = lambda do |_|
      sleep(30)
    ensure
      ended << Heddle::Clock.now
    end
    serve(last) do |c|
      serve(->(_) { [200, {}, [Net::HTTP.get(URI(c))]] }) do |b|
        WORLDS.each_value do |world|
          began = Heddle::Clock.now
          world.call(-> { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { Net::HTTP.get(URI(b)) } } })
          assert_operator ended.pop - began, :<, stretched(3) # 5 without the header
        end
      end
    end
  end

  def test_a_request_keeps_the_header_that_it_has
    get = Net::HTTP::Get.new("/")
    app = ->(env) { [200, {}, [env["HTTP_REQUEST_TIMEOUT"].to_s]] }
    serve(app) do |url|
      Net::HTTP.start(URI(url).host, URI(url).port) do |http|
        assert_equal "", http.request(get).body
        Heddle.deadline(5) { assert_in_delta 5, Float(http.request(get).body), 2 }
        assert_equal "", http.request(get).body, "the header of another deadline"
        get["Request-Timeout"] = "77"
        Heddle.deadline(5) { assert_equal "77", http.request(get).body }
        assert_equal "77", get["Request-Timeout"]
      end
    end
  end

  # On either side of it. A config.ru with freeze_app freezes all of them.
  def test_rack_timeout_is_named_once
    ended = ->(_) { [200, {}, ["in time"]] }
    [->(app) { Heddle::Rack::Deadline.new(Rack::Timeout.new(app), 5) },
      ->(app) { Rack::Timeout.new(Heddle::Rack::Deadline.new(app, 5)) },
      ->(app) { Rack::Timeout.new(Heddle::Rack::Deadline.new(app, 5).freeze) }].each do |stack|
      app = stack.call(ended)
      lines = StringIO.new
      3.times { assert_equal 200, app.call("PATH_INFO" => "/a", "rack.errors" => lines).first }
      assert_equal 1, lines.string.scan("rack-timeout raises in a thread").size, lines.string
    end
    lines = StringIO.new
    assert_equal 200, Heddle::Rack::Deadline.new(ended, 5).call("PATH_INFO" => "/a", "rack.errors" => lines).first
    assert_empty lines.string
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
    serve(Heddle::Rack::Deadline.new(app, 0.1)) do |url|
      assert_within(5) do
        slow = Array.new(4) { Thread.new { Net::HTTP.get_response(URI("#{url}slow")).code } }
        assert_equal %w[503] * 4, slow.map(&:value)
      end
      assert_equal "in time", Net::HTTP.get(URI(url)) # in a thread whose last request was ended
    end
  end

  private

  def each_world
    WORLDS.each_value { |world| world.call(-> { yield }) }
  end

  # With Puma.
  def serve(app)
    app = Heddle::Rack::Deadline.new(app, 5, headers: true) unless app.is_a?(Heddle::Rack::Deadline)
    puma = Puma::Server.new(app, nil, min_threads: 2, max_threads: 2, log_writer: Puma::LogWriter.null)
    port = puma.add_tcp_listener("127.0.0.1", 0).local_address.ip_port
    puma.run
    yield "http://127.0.0.1:#{port}/"
  ensure
    puma&.stop(true)
  end

  def assert_bounded(seconds, headers)
    asked = Heddle::Rack.send(:const_get, :RequestedTime).of(headers)
    assert_in_delta seconds, [asked, 5].compact.min, headers.key?("HTTP_X_REQUEST_DEADLINE") ? 0.5 : 1e-9, headers
  end

  def call(app, seconds) = Heddle::Rack::Deadline.new(app, seconds).call("PATH_INFO" => "/a")
end

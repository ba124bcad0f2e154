# frozen_string_literal: true

require "test_helper"
require "support/falcon_process"
require "support/postgresql_server"
require "async"
require "falcon/version"
require "heddle"
require "open3"

# falcon in processes of its own, on Heddle's loop: each container, both protocols, its signals.
class FalconTest < Minitest::Test
  include PostgreSQLHelpers

  mode :fiber
  hard_deadline 60

  APP = <<~RUBY
    run lambda { |env|
      if env["PATH_INFO"] == "/slow"
        File.write("started", "")
        sleep(0.4)
      end
      [200, {}, ["\#{Fiber.scheduler.respond_to?(:backend) ? "Heddle" : "Async"} \#{Process.pid}"]]
    }
  RUBY
  ON_HEDDLE = /\AHeddle \d+\z/

  def test_forked_children_are_replaced_and_stopped
    FalconProcess.run("serve", "--forked", "--count", "2", "--bind", "http://127.0.0.1:PORT", "--preload", "preload.rb",
      files: {"config.ru" => APP, "preload.rb" => %(require "heddle/async")}) do |falcon|
      before = bodies(falcon, 200)
      assert(before.all?(ON_HEDDLE), before.uniq.inspect)
      falcon.signal(:HUP)
      new_children = Array.new(10) { wait_until(what: "new children") { answer_of_another(falcon, before) } }
      assert(new_children.all?(ON_HEDDLE), new_children.uniq.inspect)
      wait_until(what: "the end of the old children") do
        before.uniq.none? { |body| File.exist?("/proc/#{body[/\d+/]}") }
      end
      refute_match(/"severity":"error"/, File.read(falcon.log))
      falcon.signal(:INT)
      assert_predicate falcon.wait, :success?, File.read(falcon.log)
    end
  end

  # A stop cuts off requests or lets them end, as this version of falcon does it on Async's own loop.
  def test_stops_with_requests_in_flight
    # Without the option requests have a second, which is not enough on a busy machine.
    patience = (Gem::Version.new(Falcon::VERSION) >= Gem::Version.new("0.57")) ? ["--graceful-stop", "20"] : []
    fates = [nil, "heddle/async"].map do |preload|
      FalconProcess.run("serve", "--forked", "--count", "1", "--bind", "http://127.0.0.1:PORT", *patience,
        files: {"config.ru" => APP}, preload: preload) { |falcon| [fate_of_a_slow_request(falcon), falcon.wait&.to_i] }
    end
    assert_equal fates.first, fates.last, "Async's own loop, Heddle's"
    assert_equal 0, fates.last.last
  end

  def test_threads_with_tls_and_http2
    FalconProcess.run("serve", "--threaded", "--count", "2", "--bind", "https://127.0.0.1:PORT",
      "--hostname", "localhost", files: {"config.ru" => APP}, preload: "heddle/async", tls: true) do |falcon|
      assert_match ON_HEDDLE, falcon.get("/").body
      urls = Array.new(20) { falcon.uri("/").to_s }
      out, status = Open3.capture2("curl", "-k", "--no-progress-meter", "--http2", "--parallel",
        "-w", "\nversion %{http_version}\n", *urls)
      assert_predicate status, :success?
      assert_equal [20, 20], [out.scan("version 2\n").size, out.scan(/Heddle \d+/).size], out
      falcon.signal(:TERM)
      assert_predicate falcon.wait, :success?, File.read(falcon.log)
    end
  end

  def test_hybrid
    FalconProcess.run("serve", "--hybrid", "--forks", "1", "--threads", "2", "--bind", "http://127.0.0.1:PORT",
      files: {"config.ru" => APP}, preload: "heddle/async") do |falcon|
      assert(bodies(falcon, 50).all?(ON_HEDDLE))
      falcon.signal(:INT)
      assert_predicate falcon.wait, :success?, File.read(falcon.log)
    end
  end

  HOST = <<~RUBY
    require "heddle/async"
    require "falcon/environment/rack"

    service "host" do
      include Falcon::Environment::Rack
      count 1
      endpoint { Async::HTTP::Endpoint.parse("http://127.0.0.1:PORT") }
    end
  RUBY
  HEDDLES = <<~RUBY
    require "heddle/net_http"
    require "heddle/rack/deadline"

    use Heddle::Rack::Deadline, 1
    run lambda { |env|
      body =
        case env["PATH_INFO"]
        when "/fetch" then Net::HTTP.get(URI("http://127.0.0.1:PORT/")) # by the same loop
        when "/query" then Heddle::DB.connect(ENV.fetch("POSTGRESQL")).query_value("select 'held ' || pg_sleep(30)")
        else "here, \#{Heddle::NetHTTP.enabled?}, \#{Fiber.scheduler.respond_to?(:backend)}"
        end
      [200, {}, [body]]
    }
  RUBY

  def test_heddles_clients_and_deadlines_in_a_request
    server = postgresql
    FalconProcess.run("host", "falcon.rb", files: {"falcon.rb" => HOST, "config.ru" => HEDDLES},
      environment: {"POSTGRESQL" => server.url}) do |falcon|
      assert_equal "here, true, true", falcon.get("/fetch").body
      watching = Heddle::DB.connect(server.url)
      assert_within(10, at_least: 1, remeasure: 0) do
        responses = Array.new(2) { Thread.new { falcon.get("/query") } }
        wait_until(what: "both queries") { held(watching) == 2 }
        assert_equal %w[503 503], responses.map { |thread| thread.value.code }
      end
      wait_until(what: "the end of the queries") { held(watching).zero? }
      assert_equal "200", falcon.get("/").code
    ensure
      watching&.close
    end
  end

  private

  # By ten tasks, a connection each.
  def bodies(falcon, count)
    Heddle::FiberPool.new(10).map(Array.new(count)) { falcon.get("/").body }
  end

  # Old children go on answering until new ones are ready; falcon 0.51 cuts off what they answer then.
  def answer_of_another(falcon, before)
    body = falcon.get("/").body
    body unless before.include?(body)
  rescue EOFError, Errno::ECONNRESET
    nil
  end

  def fate_of_a_slow_request(falcon)
    slow = Thread.new do
      falcon.get("/slow").code
    rescue EOFError, Errno::ECONNRESET
      "cut off"
    end
    wait_until(what: "the request") { File.exist?(File.join(falcon.folder, "started")) }
    falcon.signal(:TERM)
    slow.value
  end

  def held(connection)
    connection.query_value(<<~SQL)
      select count(*) from pg_stat_activity
      where state = 'active' and query like '%''held%pg_s%' and pid <> pg_backend_pid()
    SQL
  end
end

# frozen_string_literal: true

require "json"
require "net/http"
require "support/loop_helpers"
require "support/puma_process"
require "support/servers"
require "heddle/db"

# Tests with a Rails application (shop/) on two workers of Puma, and a database. For each order it asks an HTTP service
# and the database, while its workers are killed, restart and stop. No order is lost that a worker had begun, but for
# those of a worker that was killed; each answer is the order's own; and no connection stays behind with its user.
#
# The test has the database's addresses: `url` for Heddle, `address` for ActiveRecord.
module RailsRestarts
  include LoopHelpers

  SHOP = Dir.glob("**/*", base: "#{__dir__}/shop").select { |path| File.file?("#{__dir__}/shop/#{path}") }
    .to_h { |path| [path, File.read("#{__dir__}/shop/#{path}")] }.freeze
  WORKERS = 2
  CLUSTER = "workers #{WORKERS}\nworker_check_interval 1\n"
  CLIENTS = 16
  ON_A_CONNECTION = 10
  # Of each test that has a load; the load goes on until what the test does is done.
  ORDERS = Integer(ENV.fetch("HEDDLE_TEST_ORDERS", "300"))
  KILLS = 3
  WAITING = 300
  PATIENCE = 40
  FAULT = /Completed (?!200)|[^ \]]:\d+:in / # in the log
  CUT_OFF = [EOFError, Errno::ECONNRESET, Errno::EPIPE].freeze

  def setup
    @folder = Dir.mktmpdir("heddle-shop")
    @database = Heddle::DB.connect(url)
    @database.exec("create table items (id integer primary key, name varchar(20))")
    @database.exec("create table orders (id integer primary key, worker integer)")
    @database.transaction do
      100.times { |number| @database.exec("insert into items values (#{number}, 'item #{number}')") }
    end
    @answers = {} # workers by the numbers of orders
    @cut_off = [] # numbers of orders
    @killed = [] # workers
    @waiting = Thread::Queue.new # numbers of orders
    @let_go = Thread::Queue.new
  end

  def teardown
    @database.close
    FileUtils.rm_rf(@folder)
  end

  def test_workers_are_killed
    with_shop do |puma|
      under_load(puma) do
        KILLS.times do
          before = @answers.values.uniq
          @killed << @answers.values.reverse.find { |worker| !@killed.include?(worker) }
          Process.kill(:KILL, @killed.last)
          wait_for_workers(1, besides: before)
          wait_for_orders(50)
        end
      end
    end
  end

  def test_a_phased_restart
    with_shop("preload_app! false") do |puma|
      restart_under_load(puma, :USR1)
      assert_equal WORKERS, puma.written.scan(/ booted in \S+, phase: 1$/).size, puma.written
    end
  end

  def test_a_hot_restart
    with_shop("preload_app!") { |puma| restart_under_load(puma, :USR2) }
  end

  def test_a_hot_restart_of_bin_rails_server
    command = %w[bin/rails server --port PORT --binding 127.0.0.1 --environment production]
    puma = "plugin :heddle\nheddle fibers: 200\n#{CLUSTER}"
    with_service do |service|
      WebProcess.run(command, files: {**SHOP, "config/puma.rb" => puma}, environment: environment(service)) do |server|
        restart_under_load(server, :USR2)
        assert_all_kept(server)
        server.signal(:TERM)
        assert server.wait, server.written
      end
    end
  end

  def test_a_stop_with_hundreds_of_orders_in_flight
    with_shop do |puma|
      clients = Array.new(WAITING) do |number|
        in_background { connect(puma) { |http| order(http, number, "waiting") } }
      end
      wait_until(PATIENCE, what: "#{WAITING} orders") { @waiting.size == WAITING }
      puma.signal(:TERM)
      wait_until(what: "the closed port") { refused?(puma) }
      @let_go.close
      clients.each(&:value)
      assert puma.wait, puma.written
      assert_equal [*0...WAITING], @answers.keys.sort
    end
  end

  private

  def environment(service)
    {"RUBYOPT" => PumaProcess::RUBYOPT, "RAILS_ENV" => "production", "DATABASE_URL" => address,
     "SERVICE" => "http://127.0.0.1:#{service}"}
  end

  def with_shop(configuration = "")
    with_service do |service|
      options = {fibers: 400, files: SHOP, environment: environment(service)}
      PumaProcess.run(CLUSTER + configuration, **options) do |puma|
        yield puma
        assert_all_kept(puma)
      rescue SystemCallError, Minitest::Assertion => error
        raise error.class, "#{error.message}:\n#{puma.written}#{written(puma).grep(FAULT).first(20).join}"
      end
    end
  end

  # An HTTP service with persistent connections. What asks for /waiting/… waits until the test lets it go.
  def with_service(&block)
    serve = lambda do |connection|
      while (path = connection.gets)
        nil until connection.gets("\r\n", chomp: true).to_s.empty?
        number = path[/\d+/]
        path.include?("/waiting/") ? wait_with(number) : sleep(rand(0.3))
        body = "price of #{number}"
        connection.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}")
      end
    rescue *CUT_OFF
      nil # a worker was killed
    end
    with_server(serve, &block)
  end

  def wait_with(number)
    @waiting << number
    @let_go.pop
  end

  def restart_under_load(puma, signal)
    under_load(puma) do
      before = @answers.values.uniq
      puma.signal(signal)
      wait_for_workers(WORKERS, besides: before)
      wait_for_orders(50)
    end
  end

  # Has clients send orders, several on each connection, while the block runs and until there are enough.
  def under_load(puma)
    ended = false
    least = 0
    clients = Array.new(CLIENTS) do |client|
      in_background do
        numbers = client.step(by: CLIENTS)
        send_orders(puma, numbers) until ended && @answers.size >= least
      end
    end
    wait_for_workers(WORKERS, besides: [])
    yield
    least = ORDERS
  ensure
    ended = true
    clients&.each(&:value)
  end

  def send_orders(puma, numbers)
    number = nil
    connect(puma) { |http| ON_A_CONNECTION.times { order(http, number = numbers.next) } }
  rescue *CUT_OFF
    @cut_off << number
  end

  def connect(puma, &block)
    Net::HTTP.start("127.0.0.1", puma.port, max_retries: 0, read_timeout: stretched(PATIENCE), &block)
  end

  def order(http, number, what = "orders")
    answer = http.get("/#{what}/#{number}", "X-Request-Id" => "order-#{number}")
    raise EOFError if answer.body.bytesize < answer.content_length.to_i # Net::HTTP takes the part for the whole

    assert_equal ["200", "order-#{number}"], [answer.code, answer["X-Request-Id"]], answer.body
    order = JSON.parse(answer.body, symbolize_names: true)
    @answers[number] = order.delete(:worker)
    assert_equal expected(number), order
  end

  def expected(number) = {number: number, price: "price of #{number}", item: "item #{number % 100}", order: number}

  def wait_for_orders(count)
    seen = @answers.size
    wait_until(PATIENCE, what: "#{count} more orders") { @answers.size >= seen + count }
  end

  def wait_for_workers(count, besides:)
    wait_until(PATIENCE, what: "#{count} other workers") { (@answers.values.uniq - besides).size >= count }
  end

  def assert_all_kept(puma)
    begun = File.readlines("#{puma.folder}/begun").map { |line| line.split.map(&:to_i) }
    assert_equal begun.size, begun.uniq(&:first).size, "no order began twice"
    begun = begun.to_h
    lost = begun.except(*@answers.keys)
    assert_empty lost.reject { |_, worker| @killed.include?(worker) }, "orders that workers have begun are lost"
    assert_empty lost.keys - @cut_off
    assert_equal begun.except(*lost.keys), @answers, "each was answered by the worker that had begun it"
    stored = @database.query("select id, worker from orders").to_h
    assert_equal @answers, stored.except(*lost.keys), "each that was answered is stored"
    assert_empty stored.keys - begun.keys
    assert_idle(puma) unless refused?(puma)
    assert_empty written(puma).grep(FAULT)
  end

  # What Rails has logged.
  def written(puma) = File.readlines("#{puma.folder}/production.log")

  # Rails ends a request behind its answer.
  def assert_idle(puma)
    pools = {}
    wait_until(PATIENCE, what: "idle pools of all workers") do
      answer = JSON.parse(puma.get("/").body)
      pools[answer.fetch("worker")] = answer.fetch("pool").values_at("busy", "dead", "waiting")
      pools.size == WORKERS && pools.values.uniq == [[0, 0, 0]]
    end
  rescue Minitest::Assertion => error
    flunk "#{error.message}: busy, dead and waiting are #{pools}"
  end

  def refused?(puma)
    TCPSocket.new("127.0.0.1", puma.port).close
    false
  rescue Errno::ECONNREFUSED
    true
  end
end

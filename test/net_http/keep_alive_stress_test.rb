# frozen_string_literal: true

require "test_helper"
require "securerandom"
require "support/keeping_server"
require "heddle/net_http"
require "heddle"

runs_on rubies: :ends, short: false

# A hundred tasks and twenty threads at once, at random: sessions that end well, are left, time out, are interrupted or
# cancelled, while the server closes, is late and leaves bytes over. Each answer names its request.
#
# HEDDLE_STRESS says how many seconds (2).
class KeepAliveStressTest < Minitest::Test
  SECONDS = Float(ENV.fetch("HEDDLE_STRESS", 2))
  SEED = Integer(ENV.fetch("HEDDLE_STRESS_SEED", Process.pid))

  hard_deadline SECONDS + 60
  mode :thread

  TASKS = 100
  THREADS = 20
  TOTAL = 40

  class Crossed < StandardError; end
  class Interrupted < StandardError; end

  def setup
    Heddle::NetHTTP.enable
    Heddle::NetHTTP.keep_alive(idle: 1, per_host: 30, total: TOTAL)
    @ports, @server = servers
    @counts = Hash.new(0)
    @lock = Mutex.new
    @before = Heddle::NetHTTP.stats
  end

  def teardown
    Heddle::NetHTTP.keep_alive(false)
    Process.kill(:KILL, @server)
    Process.wait(@server)
  end

  def test_nothing_crosses_and_nothing_is_left
    descriptors = descriptor_count
    most = 0
    @end = monotonic + SECONDS
    watching = Thread.new do
      while monotonic < @end
        most = [most, Heddle::NetHTTP.stats[:idle]].max
        sleep 0.01
      end
    end
    threads = Array.new(THREADS) { |i| Thread.new { visit_until_the_end(Random.new(SEED + i)) } }
    tasks = Thread.new do
      Heddle.run do
        Array.new(TASKS) { |i| Heddle.spawn { visit_until_the_end(Random.new(SEED + 100 + i)) } }.each(&:wait)
      end
    end
    [*threads, tasks, watching].each(&:value)
    check(most, descriptors)
  end

  private

  def check(most, descriptors)
    reused = Heddle::NetHTTP.stats[:reused] - @before[:reused]
    puts "#{@counts}, reused #{reused}, at most #{most} idle (seed #{SEED})"
    assert_equal 0, @counts[:crossed]
    assert_operator @counts[:right], :>, 100
    assert_predicate reused, :positive? # how many, is a matter of the idle second, which a busy machine lets pass
    assert_operator most, :<=, TOTAL
    Heddle::NetHTTP.keep_alive_clear
    GC.start # for sessions that were interrupted while they connected
    wait_until { descriptor_count <= descriptors + 2 }
  end

  def visit_until_the_end(random)
    while monotonic < @end
      count(visit(random))
      sleep(random.rand * 0.002) if random.rand < 0.3
    end
  end

  def count(outcome) = @lock.synchronize { @counts[outcome] += 1 }

  def visit(random)
    case random.rand(20)
    when 0 then left(random)
    when 1 then timed_out(random)
    when 2 then cancelled(random)
    when 3 then raised_in(random)
    when 4 then interrupted(random)
    else
      several(random)
    end
  rescue Crossed
    :crossed
  rescue Net::ReadTimeout, Net::OpenTimeout, IOError, SystemCallError
    :failed # a POST that met a close, or one of the ways above
  end

  def session(random)
    Net::HTTP.new("127.0.0.1", @ports[random.rand(@ports.size)], nil).tap { |http| http.read_timeout = 10 }
  end

  def several(random)
    session(random).start do |http|
      (1 + random.rand(3)).times do
        next unless ask(http, random).end_with?("left")

        # What is left over answers the next request of the same session, by stock Net::HTTP, too.
        http.get("/#{SecureRandom.hex(8)}-x") if random.rand < 0.5
        break
      end
    end
    :right
  end

  # The session goes on after a request that was not answered.
  def interrupted(random)
    session(random).start do |http|
      begin
        Timeout.timeout(0.002 * random.rand) { ask(http, random, %w[x close late]) }
      rescue Timeout::Error
        nil
      end
      ask(http, random)
    end
    :right
  end

  def ask(http, random, manners = %w[x x x x x x close late left])
    path = "/#{SecureRandom.hex(8)}-#{manners.sample(random: random)}"
    response = (random.rand < 0.2) ? http.post(path, "a=b") : http.get(path)
    raise Crossed, "#{path} got #{response.body.inspect}" unless response.body == path

    path
  end

  def left(random)
    session(random).start { |http| http.request_get("/#{"x" * 3000}-late") { break } }
    :left
  end

  def timed_out(random)
    http = session(random)
    http.read_timeout = 0.001
    http.max_retries = 0
    http.start { ask(http, random) }
    :in_time
  end

  def cancelled(random)
    Heddle.deadline(0.002 * random.rand) { several(random) }
    :in_time
  rescue Heddle::DeadlineExceeded
    :late
  end

  def raised_in(random)
    return several(random) if Fiber.current_scheduler

    other = Random.new(random.rand(1 << 30))
    thread = Thread.new { several(other) }
    thread.report_on_exception = false
    sleep(random.rand * 0.002)
    thread.raise(Interrupted)
    thread.value
  rescue Interrupted
    :raised_in
  end

  # In a process of its own: two servers.
  def servers
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      all = Array.new(2) { KeepingServer.new { |request| answer(request) } }
      writer.puts(all.map(&:port).join(" "))
      sleep
    ensure
      exit!(0)
    end
    writer.close
    [reader.gets.split.map(&:to_i), pid]
  ensure
    reader.close
  end

  def answer(request)
    reply = "HTTP/1.1 200 OK\r\nContent-Length: #{request.path.bytesize}\r\n\r\n#{request.path}"
    return (rand < 0.02) ? nil : reply if request.path.end_with?("x")

    case request.path[/\w+\z/]
    when "close" then [reply, :close]
    when "late" then [reply.byteslice(0, 30), 0.002, reply.byteslice(30..)]
    else "#{reply}#{reply}"
    end
  end
end

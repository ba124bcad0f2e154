# frozen_string_literal: true

require "test_helper"
require "support/http_cases"
require "support/http_results"
require "support/scripted_http_server"
require "heddle"
require "heddle/net_http"

runs_on also: %i[yjit]

# The same exchanges with stock and with accelerated Net::HTTP: their results must not differ. In three cases one runs
# the accelerated in a task and one the stock, where bytes take other paths than in a thread.
#
# HEDDLE_HTTP_CASES says how many (400), HEDDLE_HTTP_SEED where to begin. Seeds that failed before are in seeds.txt
# and always run.
class DifferentialTest < Minitest::Test
  include HTTPResults

  hard_deadline 290
  mode :thread

  CASES = Integer(ENV.fetch("HEDDLE_HTTP_CASES", 400))
  FIRST = Integer(ENV["HEDDLE_HTTP_SEED"] || (Process.pid * 1000 + Time.now.usec) % 1_000_000_000)
  KEPT = File.readlines(File.expand_path("seeds.txt", __dir__)).grep(/\A\d/).map(&:to_i)

  CHILDREN = 4 # at once, since cases mostly wait

  # What bin/test says that it runs with.
  def test_the_configured_library_version_is_loaded
    mine = "net-http-#{Net::HTTP::VERSION}"
    assert_includes ENV.fetch("HEDDLE_TEST_LIBRARIES", mine), mine
  end

  def test_cases_that_failed_before
    assert_empty play(KEPT).first
  end

  def test_new_cases
    failed, fast = play((FIRST...FIRST + CASES).to_a)
    assert_empty failed,
      "seeds that tell the difference: #{failed.inspect} (HEDDLE_HTTP_SEED=#{failed.first} HEDDLE_HTTP_CASES=1)"
    assert_operator fast, :>, 3 * CASES
  end

  private

  # The seeds that failed, and how often the fast path was taken. Which Net::HTTP is active concerns a whole process.
  def play(seeds)
    children = seeds.group_by { |seed| seed % CHILDREN }.values.map { |part| in_child { play_here(part) } }
    children.map { |pid, pipe|
      outcome = pipe.read
      assert_predicate Process.wait2(pid).last, :success?
      Marshal.load(outcome)
    }.transpose.then { |failed, fast| [failed.flatten.sort, fast.sum] }
  end

  def play_here(seeds)
    @server = ScriptedHTTPServer.new
    @tls = ScriptedHTTPServer.new(tls: true)
    [failing(seeds), Heddle::NetHTTP.stats[:fast]]
  end

  # With large segments and with stock's segments in turn.
  def failing(seeds)
    seeds.select do |seed|
      http_case = HTTPCase.new(seed)
      segment = seed.odd? ? 16_384 : 1 << 20
      next if by_stock(http_case, 0.25) == accelerated(http_case, segment, 0.25)

      # Bytes that nobody will send are waited for in vain, and on a busy machine also bytes that are late: this time
      # with enough time. What the server received before a connection ended is random on both sides.
      stock = fast = nil
      same = Array.new(3).any? do
        fast = accelerated(http_case, segment, 3)
        stock = outcomes_of_stock(http_case, fast)
        stock.include?(fast)
      end
      report(http_case, stock.last, fast) unless same
      !same
    end
  end

  # Where stock's own outcome is random, ours must be one of stock's.
  def outcomes_of_stock(http_case, sought)
    outcomes = []
    6.times do
      outcomes |= [by_stock(http_case, 3)]
      break if outcomes.include?(sought)
    end
    puts "seed #{http_case.seed}: stock has #{outcomes.size} outcomes" if outcomes.size > 1
    outcomes
  end

  def by_stock(http_case, timeout)
    Heddle::NetHTTP.disable
    place(http_case, 1) { outcome(http_case, timeout) }
  end

  def accelerated(http_case, segment, timeout)
    Heddle::NetHTTP.enable(segment: segment)
    place(http_case, 2) { outcome(http_case, timeout) }
  end

  def place(http_case, of_three, &work)
    (http_case.seed % 3 == of_three) ? Heddle.run(&work) : work.call
  end

  def report(http_case, stock, fast)
    puts "seed #{http_case.seed} (#{"TLS, " if http_case.tls?}Ruby #{RUBY_VERSION}):"
    stock.zip(fast).each_with_index do |(one, other), i|
      next if one == other

      (one.keys | other.keys).each do |key|
        if one[key] != other[key]
          puts "  #{i} #{key}:\n    stock #{one[key].inspect[0, 300]}\n    fast  #{other[key].inspect[0, 300]}"
        end
      end
      puts "  of #{http_case.connections.inspect[0, 1500]}" if ENV["HEDDLE_HTTP_SEED"]
    end
  end

  def outcome(http_case, timeout)
    server = http_case.tls? ? @tls : @server
    server.play(http_case.connections)
    http = Net::HTTP.new("127.0.0.1", server.port, nil)
    if http_case.tls?
      http.use_ssl = true
      http.verify_mode = OpenSSL::SSL::VERIFY_NONE
    end
    http.max_retries = 0
    http.read_timeout = timeout
    http.ignore_eof = http_case.options[:ignore_eof] if http.respond_to?(:ignore_eof=)
    results = begin
      http.start
      run_requests(http, http_case, server)
    rescue => error
      [{connect: [error.class, error.message]}]
    end
    http.finish if http.started?
    [*results, {received: server.settle}]
  end

  # Ends where the server closes behind bytes that were not requested, or may: the outcome of the next request depends
  # on how many of them were received with the reply.
  def run_requests(http, http_case, server)
    http_case.requests.each_with_index.with_object([]) do |(request, i), results|
      results << got = result(http, request)
      server.quiet
      got[:left] = left_over(http)
      left = got[:left].to_s
      if left.bytesize > 100 || (!left.empty? && (ended?(http) || http_case.connections.first.dig(i + 1, :ending)))
        break results
      end
    end
  end

  def ended?(http)
    established = 1
    http.instance_variable_get(:@socket).io.to_io.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_INFO).data.getbyte(0) !=
      established
  end

  # Bytes that arrived and were not requested, or their beginning: how many were received is random.
  def left_over(http)
    socket = http.instance_variable_get(:@socket)
    return if !socket || socket.closed?

    take_in(socket) if http.use_ssl?
    buffered = socket.instance_variable_get(:@rbuf).byteslice((socket.instance_variable_get(:@rbuf_offset) || 0)..)
    return buffered.byteslice(0, 1000) if http.use_ssl?

    "#{buffered}#{waiting(socket.io)}".b.byteslice(0, 1000)
  rescue SystemCallError => error # which follows the bytes
    buffered.empty? ? error.class.name : buffered.byteslice(0, 1000)
  end

  def waiting(socket)
    bytes = socket.recv_nonblock(1 << 20, Socket::MSG_PEEK, exception: false)
    bytes if bytes.is_a?(String)
  end

  # Bytes that TLS buffers cannot be looked at without taking them.
  def take_in(socket)
    while (bytes = socket.io.read_nonblock(16_384, exception: false)).is_a?(String)
      socket.instance_variable_get(:@rbuf) << bytes
      socket.instance_variable_set(:@rbuf_empty, false)
    end
  rescue OpenSSL::SSL::SSLError
    nil # it ended without notice, and will report that again
  end
end

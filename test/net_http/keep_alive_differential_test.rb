# frozen_string_literal: true

require "test_helper"
require "support/http_cases"
require "support/http_results"
require "support/scripted_http_server"
require "heddle"
require "heddle/net_http"

runs_on rubies: :ends, except: %i[portable], short: false

# Conversations of several sessions with two servers, by stock Net::HTTP and with kept connections: callers must see
# the same. The servers close connections at any moment, leave bytes over and send wrong lengths, and note each request:
# none that may not be repeated has come twice.
#
# HEDDLE_HTTP_CASES says how many (1000), HEDDLE_HTTP_SEED where to begin.
class KeepAliveDifferentialTest < Minitest::Test
  include HTTPResults

  CASES = Integer(ENV.fetch("HEDDLE_HTTP_CASES", 1000))

  hard_deadline [290, CASES / 4].max
  mode :thread

  FIRST = Integer(ENV["HEDDLE_HTTP_SEED"] || (Process.pid * 1000 + Time.now.usec) % 1_000_000_000)
  CHILDREN = 4

  REPEATABLE = %w[GET HEAD PUT DELETE].freeze
  # What a caller sees of a request that may not be repeated, and met a server that closed.
  LOST = [EOFError, IOError, Errno::ECONNRESET, Errno::EPIPE, Errno::ECONNABORTED, OpenSSL::SSL::SSLError].freeze

  # Answers by the request's path, on whichever connection it comes.
  class Server < ScriptedHTTPServer
    # @param replies [Array<Hash>] as of ScriptedHTTPServer
    # @param manners [Hash] close_after: requests of a connection; late: whether it closes a moment later; dies: the
    #   replies instead of which it closes a connection that has had requests; left: the replies with bytes behind them;
    #   waits: the replies after which the client waits for more, which an end of the connection would be
    def converse(replies, manners)
      play([])
      @lock.synchronize do
        @replies, @manners, @log = replies, manners, []
      end
    end

    # @return [Array(Integer, String, Integer, Symbol)] the reply, the verb, the request's number on its connection, and
    #   what became of it
    def log = @lock.synchronize { @log.dup }

    private

    def serve(socket, _script, heard)
      stream = socket
      if @context
        stream = OpenSSL::SSL::SSLSocket.new(socket, @context)
        stream.accept
      end
      (1..).each do |number|
        Thread.current[:quiet] = true
        head, = read_request(stream)
        break unless head

        Thread.current[:quiet] = false
        break unless answer(stream, socket, head, number)
      end
    rescue SystemCallError, IOError, OpenSSL::SSL::SSLError
      nil
    ensure
      socket.close
    end

    def answer(stream, socket, head, number)
      verb, path = head.split(" ", 3)
      index = path.delete("/").to_i
      reply = @replies[index]
      dies = number > 1 && @manners[:dies].include?(index)
      # A reset may take back what was sent before it.
      nothing = dies || (number > 1 && (reply[:pieces].join.empty? || reply[:ending] == :reset))
      @lock.synchronize { @log << [index, verb, number, nothing ? :died : :answered] }
      return if dies

      send_pieces(stream, socket, reply[:pieces], index)
      ending = reply[:ending] || (:close if number == @manners[:close_after] && !@manners[:waits].include?(index))
      sleep(4 * PAUSE) if ending == :close && @manners[:late]
      socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii")) if ending == :reset
      ending.nil?
    end

    def send_pieces(stream, socket, pieces, index)
      pieces.each_with_index do |piece, i|
        sleep(PAUSE) if i > 0
        stream.write(piece)
      end
      stream.write("HTTP/1.1 200 Not yours\r\nContent-Length: 2\r\n\r\nno") if @manners[:left].include?(index)
      delivered(socket)
    end
  end

  def test_conversations
    seeds = (FIRST...FIRST + CASES).to_a
    children = seeds.group_by { |seed| seed % CHILDREN }.values.map { |part| in_child { play(part) } }
    outcomes = children.map do |pid, pipe|
      outcome = pipe.read
      assert_predicate Process.wait2(pid).last, :success?
      Marshal.load(outcome)
    end
    failed, *counts = outcomes.transpose
    reused, died = counts.map(&:sum)
    puts "#{CASES} conversations: #{reused} times a connection was used again, #{died} of these closed at that moment"
    assert_empty failed.flatten.sort, "seeds that tell the difference (HEDDLE_HTTP_SEED=… HEDDLE_HTTP_CASES=1)"
    assert_operator reused, :>, CASES / 5 if CASES >= 100
    assert_operator died, :>, CASES / 100 if CASES >= 100
  end

  private

  def play(seeds)
    @servers = [Server.new, Server.new]
    @tls = Server.new(tls: true)
    @died = 0
    failed = seeds.reject { |seed| same?(seed) }
    [failed, Heddle::NetHTTP.stats[:reused], @died]
  end

  def same?(seed)
    http_case = HTTPCase.new(seed)
    plan = plan_of(http_case)
    stock = by_stock(plan, 0.25)
    plan[:manners][:waits] = stock[0].each_index.select { |i| stock[0][i][:error]&.first == Net::ReadTimeout }
    return true if differences(stock, kept(plan, 0.25), plan).empty?

    # As in the differential test of single sessions: with enough time, and stock's own outcome may be random.
    stock = Array.new(4) { by_stock(plan, 3) }
    found = nil
    same = Array.new(3).any? do
      results = kept(plan, 3)
      stock.any? { |one| (found = differences(one, results, plan)).empty? }
    end
    puts "seed #{seed} #{"TLS " if plan[:tls]}#{plan[:manners]}:", found unless same
    same
  end

  # Of which server each request is asked, and in which kind of session.
  def plan_of(http_case)
    random = Random.new(http_case.seed)
    requests = http_case.requests
    count = requests.size
    {requests: requests, replies: http_case.connections.flatten(1), tls: http_case.tls?,
     servers: Array.new(count) { (random.rand < 0.75) ? 0 : 1 },
     ways: Array.new(count) { %i[block block finish none][random.rand(4)] },
     retries: random.rand(2), accelerated: random.rand < 0.8, task: random.rand < 0.3,
     manners: {close_after: [nil, nil, 1, 2, 3][random.rand(5)], late: random.rand < 0.5,
               dies: Array.new(count) { |i| i if random.rand < 0.2 }.compact,
               left: Array.new(count) { |i| i if random.rand < 0.1 }.compact, waits: []}}
  end

  def by_stock(plan, timeout)
    Heddle::NetHTTP.keep_alive(false)
    Heddle::NetHTTP.disable
    converse(plan, timeout)
  end

  def kept(plan, timeout)
    plan[:accelerated] ? Heddle::NetHTTP.enable : Heddle::NetHTTP.disable
    Heddle::NetHTTP.keep_alive
    plan[:task] ? Heddle.run { converse(plan, timeout) } : converse(plan, timeout)
  ensure
    Heddle::NetHTTP.keep_alive_clear
  end

  def converse(plan, timeout)
    servers = [plan[:tls] ? @tls : @servers[0], @servers[1]]
    servers.each { |server| server.converse(plan[:replies], plan[:manners]) }
    results = plan[:requests].each_with_index.map do |request, i|
      server = servers[plan[:servers][i]]
      outcome = visit(session(server, plan, timeout), plan[:ways][i], request, "/#{i}")
      server.quiet
      outcome
    end
    servers.each { |server| server.quiet }
    [results, servers.flat_map(&:log)]
  end

  def session(server, plan, timeout)
    http = Net::HTTP.new("127.0.0.1", server.port, nil)
    if server.equal?(@tls)
      http.use_ssl = true
      http.verify_mode = OpenSSL::SSL::VERIFY_NONE
    end
    http.max_retries = plan[:retries]
    http.read_timeout = timeout
    http
  end

  def visit(http, way, request, path)
    http.start if way == :finish
    got = (way == :block) ? http.start { result(http, request, path) } : result(http, request, path)
    got.delete(:closed)
    http.finish if http.started?
    got
  end

  # Descriptions of what a caller sees differently, and of requests that came too often.
  def differences(stock, kept, plan)
    results, log = kept
    differing = results.each_index.reject do |i|
      stock[0][i] == results[i] || lost?(results[i], log, plan[:requests][i], i)
    end
    found = differing.map do |i|
      "  #{i} #{plan[:requests][i].verb}:\n" \
        "    stock #{stock[0][i].inspect[0, 400]}\n    kept  #{results[i].inspect[0, 400]}"
    end
    found.concat(repeated(log, plan)).tap { @died += log.count { |*, fate| fate == :died } if found.empty? }
  end

  # A request that may not be repeated, and met a server that closed at that moment.
  def lost?(result, log, request, index)
    !REPEATABLE.include?(request.verb) && log.any? { |one, _, _, fate| one == index && fate == :died } &&
      LOST.include?(result[:error]&.first)
  end

  def repeated(log, plan)
    log.group_by(&:first).filter_map do |index, entries|
      verb = plan[:requests][index].verb
      most = REPEATABLE.include?(verb) ? 1 + plan[:retries] + entries.count { |*, fate| fate == :died } : 1
      "  #{index} #{verb} came #{entries.size} times" if entries.size > most
    end
  end
end

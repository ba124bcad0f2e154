# frozen_string_literal: true

require "test_helper"
require "support/http_cases"
require "support/http_results"
require "support/odd_http_answers"
require "support/scripted_http_server"
require "heddle"
require "heddle/net_http"

runs_on rubies: :ends, except: %i[portable], short: false

# Conversations of several sessions, each of one request or a few, with two servers, by stock Net::HTTP and with kept
# connections: callers must see the same. The servers close connections at any moment, leave bytes over, send wrong
# lengths and answer before they have read a request's body, and note each request: none that may not be repeated has
# come twice.
#
# HEDDLE_HTTP_CASES says how many (1000), HEDDLE_HTTP_SEED where to begin.
class KeepAliveDifferentialTest < Minitest::Test
  include HTTPResults

  CASES = Integer(ENV.fetch("HEDDLE_HTTP_CASES", 1000))

  hard_deadline [290, CASES / 4].max
  mode :thread

  FIRST = Integer(ENV["HEDDLE_HTTP_SEED"] || (Process.pid * 1000 + Time.now.usec) % 1_000_000_000)
  CHILDREN = 4

  REPEATABLE = %w[GET HEAD PUT DELETE OPTIONS].freeze
  VERBS = %w[GET GET GET GET HEAD POST PUT DELETE OPTIONS PATCH].freeze
  MODES = %i[body block string io unread break throw raise].freeze
  LEAVES = %i[break throw raise].freeze # an answer before its end
  CONNECTION = ["keep-alive", "close", "Keep-Alive, x", "TE", "upgrade"].freeze
  GREETINGS = ["HTTP/1.1 100 Continue\r\n\r\n", "\r\n", "HTTP/1.1 103 Early\r\n\r\n", "220 hello\r\n"].freeze
  # What a caller sees of a request that may not be repeated, and met a server that closed.
  LOST = [EOFError, IOError, Errno::ECONNRESET, Errno::EPIPE, Errno::ECONNABORTED, OpenSSL::SSL::SSLError].freeze

  # Answers by the request's path, on whichever connection it comes.
  class Server < ScriptedHTTPServer
    # @param replies [Array<Hash>] as of ScriptedHTTPServer
    # @param manners [Hash] close_after: requests of a connection; late: whether it closes a moment later; dies: the
    #   replies instead of which it closes a connection that has had requests; left: the replies with bytes behind them;
    #   waits: the replies after which the client waits for more, which an end of the connection would be; greeting:
    #   what it says before the first request; asks, early, ahead: the requests with "Expect" whose body it asks for,
    #   those whose body it does not read, and those that it answers before it reads the body; held: how many bytes at
    #   the end of a reply it sends only with the next one
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
        stream.write(@manners[:greeting]) if number == 1 && @manners&.fetch(:greeting)
        Thread.current[:quiet] = true
        head, = read_request(stream)
        break unless head && answer(stream, socket, head, number)

        Thread.current[:quiet] = true
        drop_body(stream, head) if @manners[:ahead].include?(index_of(head)) && expects?(head)
      end
    rescue SystemCallError, IOError, OpenSSL::SSL::SSLError
      nil
    ensure
      socket.close
    end

    def read_body(stream, head)
      Thread.current[:quiet] = false
      index = index_of(head)
      return if expects?(head) && @manners.values_at(:early, :ahead).any? { |some| some.include?(index) }

      asks = expects?(head) && @manners[:asks].include?(index) && !@manners[:dies].include?(index)
      stream.write("HTTP/1.1 100 Continue\r\n\r\n") if asks # which is an answer already
      super
    end

    def drop_body(stream, head) = stream.read(head[/^content-length: (\d+)/i, 1].to_i)

    def expects?(head) = head.match?(/^expect:/i)

    def index_of(head) = head[%r{ /(\d+)}, 1].to_i

    # In the middle of a session a server behaves alike on both sides.
    def answer(stream, socket, head, number)
      verb, = head.split(" ", 2)
      index = index_of(head)
      number = 1 unless head.match?(%r{\A\S+ /\d+/first })
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
      held = Thread.current[:held]
      stream.write(held) if held
      late = @manners[:held].fetch(index, 0)
      *pieces, Thread.current[:held] = pieces.join.unpack("a#{pieces.sum(&:bytesize) - late}a*") if late > 0
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
    replies = http_case.connections.flatten(1)
    add_requests(requests, replies, random, http_case.tls?)
    count = requests.size
    some = ->(probability) { Array.new(count) { |i| i if random.rand < probability }.compact }
    {requests: requests, replies: replies, tls: http_case.tls?,
     servers: Array.new(count) { (random.rand < 0.75) ? 0 : 1 },
     ways: Array.new(count) { %i[block block finish none][random.rand(4)] }, goes_on: some.call(0.35), last: [],
     retries: random.rand(2), accelerated: random.rand < 0.8, task: random.rand < 0.3,
     manners: {close_after: [nil, nil, 1, 2, 3][random.rand(5)], late: random.rand < 0.5, dies: some.call(0.2),
               left: some.call(0.1), waits: [], early: some.call(0.3), ahead: some.call(0.2), asks: some.call(0.3),
               held: {},
               greeting: (GREETINGS.sample(random: random) if random.rand < 0.04 && requests.none? { expects?(_1) })}}
  end

  # Some more, and odd answers to most. A server of TLS 1.3 sends tickets, which stock takes for an answer to "Expect".
  def add_requests(requests, replies, random, tls)
    random.rand(4).times do
      verb = VERBS.sample(random: random)
      body = random.bytes([0, 10, 3000, 40_000].sample(random: random)) if verb.start_with?("P")
      requests << HTTPCase::Request.new(verb, MODES.sample(random: random), body, {})
    end
    odd = OddHTTPAnswers.new(random)
    requests.each_with_index do |request, i|
      request.header["Connection"] = CONNECTION.sample(random: random) if random.rand < 0.08
      request.header["Expect"] = "100-continue" if random.rand < 0.05
      request.header["Upgrade"] = "h2c" if random.rand < 0.02
      request.header.delete("Expect") if tls
      replies[i] = odd.answer(request.verb, i) if replies[i].nil? || random.rand < 0.6
    end
  end

  def expects?(request) = request.header.key?("Expect")

  def by_stock(plan, timeout)
    Heddle::NetHTTP.keep_alive(false)
    Heddle::NetHTTP.disable
    [plan[:last], plan[:manners][:held]].each(&:clear)
    converse(plan, timeout) do |i, http, got|
      left = left(http)
      plan[:last] << i if left.nil? || left > 0 || last?(plan, i, got)
      plan[:manners][:held][i] = left if left && holds?(plan, i)
    end
  end

  def kept(plan, timeout)
    plan[:accelerated] ? Heddle::NetHTTP.enable : Heddle::NetHTTP.disable
    Heddle::NetHTTP.keep_alive
    plan[:task] ? Heddle.run { converse(plan, timeout) } : converse(plan, timeout)
  ensure
    Heddle::NetHTTP.keep_alive_clear
  end

  # Yields after each request.
  def converse(plan, timeout, &after)
    servers = [plan[:tls] ? @tls : @servers[0], @servers[1]]
    servers.each { |server| server.converse(plan[:replies], plan[:manners]) }
    results = []
    until (first = results.size) == plan[:requests].size
      server = servers[plan[:servers][first]]
      visit(session(server, plan, timeout), plan[:ways][first]) do |http|
        results << got = result(http, plan[:requests][i = results.size], "/#{i}#{"/first" if i == first}")
        got.delete(:closed)
        server.quiet
        after&.call(i, http, got)
        plan[:last].include?(i)
      end
      server.quiet
    end
    [results, servers.flat_map(&:log)]
  end

  # Whether this request is its session's last one. Stock would take what is left on a connection for the next answer.
  def last?(plan, index, got)
    request = plan[:requests][index]
    index + 1 == plan[:requests].size || !plan[:goes_on].include?(index) || got[:error] || expects?(request) ||
      LEAVES.include?(request.mode)
  end

  # Bytes behind an answer whose end is beyond doubt come at once: later nobody could tell them from the next answer.
  def holds?(plan, index)
    plan[:replies][index][:doubtful] && !plan[:manners][:left].include?(index) &&
      !LEAVES.include?(plan[:requests][index].mode)
  end

  # How many bytes; nil if the connection is over, or nobody knows.
  def left(http)
    socket = http.instance_variable_get(:@socket)
    return if socket.nil? || socket.closed? || http.use_ssl?

    buffered = socket.instance_variable_get(:@rbuf).bytesize - (socket.instance_variable_get(:@rbuf_offset) || 0)
    bytes = socket.io.recv_nonblock(1 << 20, Socket::MSG_PEEK, exception: false)
    return buffered if bytes == :wait_readable

    buffered + bytes.bytesize unless bytes.to_s.empty?
  rescue SystemCallError
    nil
  end

  def session(server, plan, timeout)
    http = Net::HTTP.new("127.0.0.1", server.port, nil)
    if server.equal?(@tls)
      http.use_ssl = true
      http.verify_mode = OpenSSL::SSL::VERIFY_NONE
    end
    http.max_retries = plan[:retries]
    http.read_timeout = timeout
    http.continue_timeout = [timeout, 1].min
    http
  end

  # The block returns whether its request was the session's last one. Without a session there is one alone.
  def visit(http, way, &block)
    http.start if way == :finish
    case way
    when :none then yield http
    when :block then http.start { nil until yield(http) }
    else nil until yield(http)
    end
    http.finish if http.started?
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

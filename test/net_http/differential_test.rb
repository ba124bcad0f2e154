# frozen_string_literal: true

require "test_helper"
require "support/http_cases"
require "support/scripted_http_server"
require "heddle"
require "heddle/net_http"

# The same conversations with stock and with accelerated Net::HTTP: nobody may be able to tell which was which. Of three cases
# one has the accelerated in a task, one the stock, where bytes take other ways than in a thread.
#
# HEDDLE_HTTP_CASES says how many (1000), HEDDLE_HTTP_SEED where to begin. Seeds that once failed are in seeds.txt and run
# always.
class DifferentialTest < Minitest::Test
  hard_deadline 290
  mode :thread

  CASES = Integer(ENV.fetch("HEDDLE_HTTP_CASES", 1000))
  FIRST = Integer(ENV["HEDDLE_HTTP_SEED"] || (Process.pid * 1000 + Time.now.usec) % 1_000_000_000)
  KEPT = File.readlines(File.expand_path("seeds.txt", __dir__)).grep(/\A\d/).map(&:to_i)

  CHILDREN = 4 # at once, as most of the time something is waited for

  # What bin/test says that it runs with.
  def test_the_library_is_the_one_that_was_asked_for
    mine = "net-http-#{Net::HTTP::VERSION}"
    assert_includes ENV.fetch("HEDDLE_TEST_LIBRARIES", mine), mine
  end

  def test_cases_that_once_failed
    assert_empty play(KEPT).first
  end

  def test_new_cases
    failed, fast = play((FIRST...FIRST + CASES).to_a)
    assert_empty failed, "seeds that tell the difference: #{failed.inspect} (HEDDLE_HTTP_SEED=#{failed.first} HEDDLE_HTTP_CASES=1)"
    assert_operator fast, :>, 3 * CASES
  end

  private

  # The seeds that failed, and how often the fast path was taken. Which Net::HTTP is in force concerns a whole process.
  def play(seeds)
    children = seeds.group_by { |seed| seed % CHILDREN }.values.map { |part| in_child { play_here(part) } }
    children.map { |pid, pipe|
      outcome = pipe.read
      assert_predicate Process.wait2(pid).last, :success?
      Marshal.load(outcome)
    }.transpose.then { |failed, fast| [failed.flatten.sort, fast.sum] }
  end

  def in_child
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      writer.binmode.write(Marshal.dump(yield))
      writer.close
      done = true
    rescue => error
      warn error.full_message(highlight: false)
    ensure
      $stdout.flush
      exit!(done ? 0 : 1)
    end
    writer.close
    [pid, reader.binmode]
  end

  def play_here(seeds)
    @server = ScriptedHTTPServer.new
    @tls = ScriptedHTTPServer.new(tls: true)
    [failing(seeds), Heddle::NetHTTP.stats[:fast]]
  end

  # With large segments and with those of stock in turn.
  def failing(seeds)
    seeds.select do |seed|
      conversation = HTTPCase.new(seed)
      segment = seed.odd? ? 16_384 : 1 << 20
      next if by_stock(conversation, 0.25) == accelerated(conversation, segment, 0.25)

      # What nobody will send is waited for in vain, and on a busy machine also what comes late: now with time enough. What
      # the server heard before a connection ended is a matter of chance on both sides.
      stock = fast = nil
      same = Array.new(3).any? do
        fast = accelerated(conversation, segment, 3)
        stock = outcomes_of_stock(conversation, fast)
        stock.include?(fast)
      end
      report(conversation, stock.last, fast) unless same
      !same
    end
  end

  # Where stock's own outcome hangs on chance, ours must be one of those that it has.
  def outcomes_of_stock(conversation, sought)
    outcomes = []
    6.times do
      outcomes |= [by_stock(conversation, 3)]
      break if outcomes.include?(sought)
    end
    puts "seed #{conversation.seed}: stock has #{outcomes.size} outcomes" if outcomes.size > 1
    outcomes
  end

  def by_stock(conversation, timeout)
    Heddle::NetHTTP.disable
    place(conversation, 1) { outcome(conversation, timeout) }
  end

  def accelerated(conversation, segment, timeout)
    Heddle::NetHTTP.enable(segment: segment)
    place(conversation, 2) { outcome(conversation, timeout) }
  end

  def place(conversation, of_three, &work)
    (conversation.seed % 3 == of_three) ? Heddle.run(&work) : work.call
  end

  def report(conversation, stock, fast)
    puts "seed #{conversation.seed} (#{"TLS, " if conversation.tls?}Ruby #{RUBY_VERSION}):"
    stock.zip(fast).each_with_index do |(one, other), i|
      next if one == other

      (one.keys | other.keys).each { |key| puts "  #{i} #{key}:\n    stock #{one[key].inspect[0, 300]}\n    fast  #{other[key].inspect[0, 300]}" if one[key] != other[key] }
      puts "  of #{conversation.connections.inspect[0, 1500]}" if ENV["HEDDLE_HTTP_SEED"]
    end
  end

  def outcome(conversation, timeout)
    server = conversation.tls? ? @tls : @server
    server.play(conversation.connections)
    http = Net::HTTP.new("127.0.0.1", server.port, nil)
    if conversation.tls?
      http.use_ssl = true
      http.verify_mode = OpenSSL::SSL::VERIFY_NONE
    end
    http.max_retries = 0
    http.read_timeout = timeout
    http.ignore_eof = conversation.options[:ignore_eof] if http.respond_to?(:ignore_eof=)
    results = begin
      http.start
      converse(http, conversation, server)
    rescue => error
      [{connect: [error.class, error.message]}]
    end
    http.finish if http.started?
    [*results, {received: server.settle}]
  end

  # Ends where the server closes behind bytes that nobody asked for, or may: what happens to the next request depends on how
  # many of them were received with the reply.
  def converse(http, conversation, server)
    conversation.requests.each_with_index.with_object([]) do |(request, i), results|
      results << got = result(http, request)
      server.quiet
      got[:left] = left_over(http)
      left = got[:left].to_s
      break results if left.bytesize > 100 || (!left.empty? && (ended?(http) || conversation.connections.first.dig(i + 1, :ending)))
    end
  end

  def ended?(http)
    established = 1
    http.instance_variable_get(:@socket).io.to_io.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_INFO).data.getbyte(0) != established
  end

  def result(http, wanted)
    got = {segments: +"".b}
    begin
      response = ask(http, wanted, got)
      got[:status] = [response.class, response.code, response.message, response.http_version, response.message&.encoding]
      got[:header] = response.to_hash.map { |name, values| [name, name.encoding, values, values.map(&:encoding)] }
      body = response.body
      got[:body] = [body.class, body.is_a?(String) ? body.b : nil, body.is_a?(String) ? body.encoding : nil]
    rescue => error
      got[:error] = [error.class, message_of(error), (error.io.class if error.respond_to?(:io))]
    end
    got[:closed] = http.instance_variable_get(:@socket)&.closed?
    got
  end

  def message_of(error)
    error.message.b.gsub(/fd \d+/, "fd N").gsub(/0x\h+/, "0x")
  end

  # What came and was not asked for, or the beginning of it: how much has been received is a matter of chance.
  def left_over(http)
    socket = http.instance_variable_get(:@socket)
    return if !socket || socket.closed?

    take_in(socket) if http.use_ssl?
    buffered = socket.instance_variable_get(:@rbuf).byteslice((socket.instance_variable_get(:@rbuf_offset) || 0)..)
    return buffered.byteslice(0, 1000) if http.use_ssl?

    "#{buffered}#{waiting(socket.io)}".b.byteslice(0, 1000)
  rescue SystemCallError => error # which comes behind the bytes
    buffered.empty? ? error.class.name : buffered.byteslice(0, 1000)
  end

  def waiting(socket)
    bytes = socket.recv_nonblock(1 << 20, Socket::MSG_PEEK, exception: false)
    bytes if bytes.is_a?(String)
  end

  # What TLS holds back cannot be looked at without taking it.
  def take_in(socket)
    while (bytes = socket.io.read_nonblock(16_384, exception: false)).is_a?(String)
      socket.instance_variable_get(:@rbuf) << bytes
      socket.instance_variable_set(:@rbuf_empty, false)
    end
  rescue OpenSSL::SSL::SSLError
    nil # it ended without saying so, and will say it again
  end

  def ask(http, wanted, got)
    request = Net::HTTPGenericRequest.new(wanted.verb, !wanted.body.nil?, wanted.verb != "HEAD", "/path", wanted.header)
    request["Content-Type"] = "text/plain" if wanted.body
    case wanted.mode
    when :body then http.request(request, wanted.body)
    when :unread then http.request(request, wanted.body) { |response| got[:seen] = response.code }
    when :block
      http.request(request, wanted.body) { |response| response.read_body { |segment| got[:segments] << segment } }
    when :string
      http.request(request, wanted.body) do |response|
        got[:string] = into = +"before"
        response.read_body(into)
      end
    else
      sink = StringIO.new("".b)
      http.request(request, wanted.body) { |response| response.read_body(sink) }.tap { got[:io] = sink.string }
    end
  end
end

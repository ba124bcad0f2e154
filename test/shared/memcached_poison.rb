# frozen_string_literal: true

require "support/memcached_helpers"

# A server replays memcached's answers, and breaks off at every byte of them, in every way; at every byte the client
# is also interrupted. The result is the right answer or an error, in time; and the next request gets its own answer,
# or an error.
#
# A class that includes this, and extends its Definitions, calls `poison(tls: …)`.
module MemcachedPoison
  include MemcachedHelpers

  TIME = 0.06
  LATE = 2 # seconds: far more than TIME, and far less than a hang
  SIDE_BY_SIDE = 24

  class Interruption < StandardError; end

  # What is asked, what memcached 1.6.18 answers (%d: the opaque of the request), and the result.
  CASES = {
    get: ["VA 5 f4 O%d\r\nvalue\r\n", ->(cache) { cache.get("key") }, "value"],
    miss: ["EN O%d\r\n", ->(cache) { cache.get("key") }, nil],
    set: ["HD O%d c17\r\n", ->(cache) { cache.set("key", "value") }, true],
    incr: ["VA 2 O%d\r\n42\r\n", ->(cache) { cache.incr("key") }, 42],
    get_multi: ["VA 1 f4 O%d\r\n1\r\nVA 3 f4 O%d\r\n\r\n2\r\nVA 1 f4 O%d\r\n3\r\nMN\r\n",
      ->(cache) { cache.get_multi("a", "b", "c") }, {"a" => "1", "b" => "\r\n2", "c" => "3"}]
  }.freeze

  # Replays +reply+ to the first request (up to an offset, and then does what +ending+ says) and answers every later
  # one, on any connection, by "EN" or, for a set, "HD". So a value or a number that comes later belongs to the first
  # request.
  class FakeServer
    attr_reader :port

    def initialize(reply, offset, ending, tls, requests)
      @reply = reply
      @offset = offset
      @ending = ending
      @requests = requests
      @tls = tls
      @lock = Mutex.new
      @first = true
      @arrived = Queue.new
      @listener = TCPServer.new("127.0.0.1", 0)
      @port = @listener.addr[1]
      @threads = [Thread.new { accept }]
    end

    # Returns once +offset+ bytes of the reply were sent.
    def await_offset = @arrived.pop

    def close
      @listener.close
      @lock.synchronize { @threads.dup }.each(&:kill).each(&:join)
    end

    private

    def accept
      loop do
        socket = @listener.accept
        socket.setsockopt(:TCP, :NODELAY, true)
        @lock.synchronize { @threads << Thread.new { serve(socket) } }
      end
    rescue IOError, SystemCallError
      nil
    end

    def serve(raw)
      socket = @tls ? tls_of(raw) : raw
      requests = []
      while (line = socket.gets)
        socket.gets if line.start_with?("ms ")
        next say(socket, "VERSION 1.6.18\r\n") if line == "version\r\n"

        requests << line
        next if @first && requests.size < @requests
        next answer_first(socket, raw, requests) if @lock.synchronize { @first.tap { @first = false } }

        requests = []
        say(socket, later(line))
      end
    rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
      nil
    ensure
      raw.close
    end

    # One for all servers: OpenSSL takes longer to make a context than for a handshake.
    CONTEXT = StreamHelpers::Certificates.context
    private_constant :CONTEXT

    def tls_of(raw)
      OpenSSL::SSL::SSLSocket.new(raw, CONTEXT).tap(&:accept)
    end

    def say(socket, text)
      socket.write(text)
      socket.flush
    end

    def later(line)
      opaque = line[/ O(\d+)/, 1]
      case line
      when /\Amn/ then "MN\r\n"
      when /\Amg/ then line.include?(" q ") ? "" : "EN O#{opaque}\r\n"
      when /\Ams/ then "HD O#{opaque} c1\r\n"
      else "NF O#{opaque}\r\n"
      end
    end

    def answer_first(socket, raw, requests)
      opaques = requests.filter_map { |request| request[/ O(\d+)/, 1]&.to_i }
      text = format(@reply, *opaques)
      text.setbyte(@offset, (text.getbyte(@offset) + 1) % 256) if @ending == :corrupt && @offset < text.bytesize
      return say(socket, text) if @ending == :corrupt

      say(socket, text.byteslice(0, @offset)) if @offset > 0
      @arrived << true
      case @ending
      when :close then raw.close
      when :reset
        raw.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
        raw.close
      when :drip then text.byteslice(@offset..).each_char { |byte| sleep(TIME / 2) && say(socket, byte) }
      else sleep if @offset < text.bytesize # sent all of it: goes on answering
      end
    end
  end

  def length(reply)
    reply.gsub("%d", "1").bytesize
  end

  # Asks at every offset, many side by side; each has its own client and server.
  def at_every_offset(name, ending, tls, timeout: TIME)
    reply, question, right = CASES.fetch(name)
    offsets = Queue.new
    (0..length(reply)).each { |offset| offsets << offset }
    offsets.close
    problems = Queue.new
    threads = Array.new(SIDE_BY_SIDE) do
      Thread.new do
        while (offset = offsets.pop)
          problem =
            broken(reply, offset, ending, tls, timeout, name, right) { |cache, server| yield(cache, server, question) }
          problems << "#{name}, #{ending} at #{offset}: #{problem}" if problem
        end
      end
    end
    threads.each(&:join)
    assert_predicate problems, :empty?, -> { Array.new(problems.size) { problems.pop }.join("\n") }
  end

  # Returns what is wrong with the result, or nil.
  def broken(reply, offset, ending, tls, timeout, name, right)
    server = FakeServer.new(reply, offset, ending, tls, (name == :get_multi) ? 4 : 1)
    options = tls ? {tls: {ca_file: Certificates.authority_file}} : {}
    cache = Heddle::Memcached.new("127.0.0.1:#{server.port}", timeout: LATE * 3, failures: 100, pool: 1, **options)
    warm(cache)
    cache = limited(cache, timeout)
    took, undelayed, result = timed { outcome { yield(cache, server) } }
    return "took #{took.round(2)} s" if undelayed > stretched(LATE)

    later = [right]
    # A retry on a new connection found what the server answers there.
    later << {get: nil, miss: nil, set: true, incr: nil, get_multi: {}}[name] unless name == :incr
    fine = result.is_a?(Exception) || later.include?(result) || (ending == :corrupt && corrupted?(result, right))
    return "answered #{result.inspect}" unless fine

    lengthened(cache)
    after = outcome { [cache.get("other"), cache.set("other", 1), cache.get_multi("x", "y")] }
    return if after == [nil, true, {}] || after.is_a?(Exception)

    "later answers were #{after.inspect}"
  ensure
    cache&.close
    server&.close
  end

  # A byte of a value that was changed on the way: the client cannot notice, and returns the value.
  def corrupted?(result, right)
    case right
    when Integer then result.is_a?(Integer) && result.digits.size <= right.digits.size
    when String then result.is_a?(String) && result.bytesize == right.bytesize
    when Hash
      result.is_a?(Hash) && (result.keys - right.keys).empty? &&
        result.all? { |key, value| value.bytesize == right[key].bytesize }
    end
  end

  # The connection is made before, with enough time.
  def warm(cache)
    server = cache.instance_variable_get(:@servers).first
    server.ask("version\r\n", LATE * 3)
  end

  def limited(cache, timeout)
    cache.send(:time_limit=, timeout)
    cache
  end

  def lengthened(cache)
    cache.send(:time_limit=, LATE)
  end

  def outcome
    yield
  rescue Heddle::Error, Interruption, IOError, SystemCallError, OpenSSL::SSL::SSLError => error
    error
  end

  # The tests, for the class that includes this.
  module Definitions
    def poison(tls:)
      CASES.each_key { |name| poison_case(name, tls) }
    end

    private

    def poison_case(name, tls)
      %i[stall drip close reset corrupt].each do |ending|
        %i[thread fiber].each do |wait|
          define_method(:"test_#{name}_#{ending}_in_a_#{wait}") do
            at_every_offset(name, ending, tls) { |cache, _, question| in_mode(wait) { question.call(cache) } }
          end
        end
      end

      %i[thread fiber].each do |wait|
        define_method(:"test_#{name}_deadline_in_a_#{wait}") do
          at_every_offset(name, :stall, tls, timeout: LATE * 2) do |cache, _, question|
            in_mode(wait) { Heddle.deadline(TIME) { question.call(cache) } }
          end
        end
      end

      define_method(:"test_#{name}_raise_and_kill") do
        at_every_offset(name, :stall, tls, timeout: LATE * 2) do |cache, server, question|
          asking = Thread.new { outcome { question.call(cache) } }
          server.await_offset
          asking.raise(Interruption, "now")
          asking.value
        end
        at_every_offset(name, :stall, tls, timeout: LATE * 2) do |cache, server, question|
          asking = Thread.new { outcome { question.call(cache) } }
          server.await_offset
          asking.kill
          asking.join(stretched(LATE))
          asking.value || Interruption.new
        end
      end

      define_method(:"test_#{name}_cancel") do
        at_every_offset(name, :stall, tls, timeout: LATE * 2) do |cache, server, question|
          Heddle.run do
            asking = Heddle.spawn { outcome { question.call(cache) } }
            server.await_offset
            asking.cancel
            outcome { asking.value }
          end
        end
      end
    end
  end
end

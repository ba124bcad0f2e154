# frozen_string_literal: true

require "test_helper"
require "stringio"
require "support/certificates"
require "support/keeping_server"
require "heddle/net_http"
require "heddle"

runs_on rubies: :ends

# An exception at every moment at which the code that keeps connections runs: before and after each of its lines and
# calls. Whatever was left half done, no connection has two owners, no answer goes to another's question, and no
# descriptor is lost. Each run takes some of the moments, another run others; with HEDDLE_STRESS it takes all.
class KeepAliveMomentsTest < Minitest::Test
  hard_deadline 240
  mode :thread

  class Interrupted < Exception; end # standard:disable Lint/InheritException

  EVENTS = %i[line c_call c_return call return b_call b_return].freeze
  CODE = %r{/lib/heddle/net_http/(keep_alive|connect|transport_request)\b}

  def setup
    Heddle::NetHTTP.enable
    Heddle::NetHTTP.keep_alive
    @server = KeepingServer.new(context: Certificates.context) { |request| answer(request.path) }
    @plain = KeepingServer.new { |request| answer(request.path) }
    @asked = 0
  end

  def teardown
    Heddle::NetHTTP.keep_alive(false)
    [@server, @plain].each(&:close)
  end

  def test_plain
    interrupt_everywhere(step: 3) { |sessions| converse(sessions) { Net::HTTP.new("127.0.0.1", @plain.port, nil) } }
  end

  def test_tls
    interrupt_everywhere(step: 11) do |sessions|
      converse(sessions) do
        Net::HTTP.new("localhost", @server.port, nil).tap do |http|
          http.ipaddr = "127.0.0.1"
          http.use_ssl = true
          http.ca_file = Certificates.authority_file
        end
      end
    end
  end

  # It refuses a persistent connection, which goes back to the others.
  def test_with_a_filter_for_connects
    asked = 0
    interrupt_everywhere(step: 5) do |sessions|
      Heddle.connect_filter(->(*) { (asked += 1) % 3 > 0 }) do
        converse(sessions) { Net::HTTP.new("127.0.0.1", @plain.port, nil) }
      end
    rescue Heddle::ConnectRefused
      nil
    end
  end

  private

  def answer(path) = "HTTP/1.1 200 OK\r\nContent-Length: #{path.bytesize}\r\n\r\n#{path}"

  # Each conversation of sessions is interrupted at one moment, and followed by one that is not.
  def interrupt_everywhere(step:, &conversation)
    step = 1 if ENV.key?("HEDDLE_STRESS")
    conversation.call([])
    total = moments(nil, &conversation)
    assert_operator total, :>, 100
    before = descriptor_count
    (1 + rand(step)).step(total, step) do |moment|
      sessions = []
      moments(moment) { conversation.call(sessions) }
      check_owners(sessions, moment)
      conversation.call(sessions)
      sessions.each { |http| http.finish if http.started? }
    end
    Heddle::NetHTTP.keep_alive_clear
    GC.start
    wait_until { GC.start || descriptor_count <= before + 4 }
  end

  # How many moments the block has, unless one of them is interrupted.
  def moments(interrupted)
    count = 0
    thread = Thread.current
    trace = TracePoint.new(*EVENTS) do |point|
      next unless Thread.current.equal?(thread) && CODE.match?(point.path)

      raise Interrupted if (count += 1) == interrupted
    end
    trace.enable { yield [] }
    count
  rescue Interrupted
    count
  end

  def converse(sessions)
    sessions << (http = yield)
    http.start { ask(http) }
    sessions << (http = yield)
    http.start
    ask(http)
    put = Net::HTTP::Put.new(path = next_path, "Content-Length" => "3")
    put.body_stream = StringIO.new("abc")
    assert_equal path, http.request(put).body
    http.finish
  end

  def ask(http)
    path = next_path
    assert_equal path, http.get(path).body
  end

  def next_path = "/#{@asked += 1}"

  # No session has a socket that the store would give to another.
  def check_owners(sessions, moment)
    mine = sessions.filter_map { |http| http.instance_variable_get(:@socket) }.reject(&:closed?).map(&:io)
    others = Array.new(4) do
      sessions.first.clone.tap do |http|
        http.instance_variable_set(:@socket, nil)
        http.instance_variable_set(:@started, false)
        http.start
      end
    end
    taken = others.map { |http| http.instance_variable_get(:@socket).io }
    assert_empty mine & taken, "moment #{moment}"
    assert_equal taken.size, taken.uniq.size, "moment #{moment}"
    others.each { |http| ask(http) && http.finish }
  end
end

# frozen_string_literal: true

require "test_helper"
require "json"
require "support/dead_network"
require "support/hosts"
require "support/loop_helpers"

# open_timeout where no host answers: it bounds the look-up and all addresses together, with and without TLS, in plain
# threads and in tasks, and its error has stock's message.
class NetHTTPOpenTimeoutTest < Minitest::Test
  include DeadNetworkHelpers
  include LoopHelpers

  hard_deadline 120
  mode :thread

  ZONE = {
    "one.test" => {"a" => ["192.0.2.1"]},
    "three.test" => {"a" => %w[192.0.2.1 192.0.2.2 192.0.2.3]},
    "silent.test" => {"failure" => "silent"}
  }.freeze

  # What is set on the Net::HTTP before it starts.
  WAYS = {
    "plain" => "",
    "tls" => "http.use_ssl = true",
    "from an address" => "http.local_host = '192.0.2.254'",
    "seen" => "http.set_debug_output(StringIO.new)"
  }.freeze

  PROGRAM = <<~RUBY
    require "json"
    require "openssl"
    require "stringio"
    require "heddle/net_http"

    def try(host, way)
      http = Net::HTTP.new(host, 443, nil)
      http.open_timeout = 0.4
      eval(way)
      began = Heddle::Clock.now
      begin
        http.start
      rescue => error
        [error.class.name, error.message, Heddle::Clock.now - began]
      end
    end
  RUBY

  # All ways at once.
  TRIES = WAYS.keys.product(ZONE.keys).freeze

  def test_in_threads
    assert_all_in_time(outcomes(<<~RUBY))
      outcomes = #{TRIES}.map { |way, host| [way, host, Thread.new { try(host, #{WAYS}[way]) }] }
        .map { |way, host, thread| [way, host, thread.value] }
    RUBY
  end

  def test_in_tasks
    assert_all_in_time(outcomes(<<~RUBY))
      outcomes = Heddle.run do
        #{TRIES}.map { |way, host| [way, host, Heddle.spawn { try(host, #{WAYS}[way]) }] }
          .map { |way, host, task| [way, host, task.value] }
      end
    RUBY
  end

  # A listener whose queue is full takes no connection, and one that is open does. What the library does depends on
  # what it finds when it is loaded. Less than 0 is left out: with Timeout the connect may come first.
  {first: "", last: "require 'net/http'"}.each do |order, before|
    define_method("test_the_errors_and_their_causes_are_stocks_with_heddle_#{order}") do
      assert_equal "", assert_child("#{before}\n#{COMPARED}", heddle: false)
    end
  end

  COMPARED = <<~RUBY
    require "heddle/net_http"
    full, open = [0, 100].map { |most| Addrinfo.tcp("127.0.0.1", 0).bind.tap { |socket| socket.listen(most) } }
    filling = Array.new(4) do
      Socket.new(:INET, :STREAM).tap { |socket| socket.connect_nonblock(full.local_address, exception: false) }
    end
    chain = ->(error) { error ? [[error.class, error.message], *chain.(error.cause)] : [] }
    try = lambda do |seconds, listener|
      http = Net::HTTP.new("127.0.0.1", listener.local_address.ip_port, nil)
      http.open_timeout = seconds
      http.start { :connected }
    rescue => error
      chain.(error)
    end
    limits = [0, 0.0, 1, "1", Rational(1)].to_h { |seconds| [seconds, open] }
    {0.05 => full, **limits}.each do |seconds, listener|
      ours = [try.(seconds, listener), Heddle.run { try.(seconds, listener) }]
      Heddle::NetHTTP.disable
      stock = try.(seconds, listener)
      Heddle::NetHTTP.enable
      # In a task the words for a wrong number are Heddle's.
      ours.pop if [ArgumentError, NoMethodError, TypeError].include?(Array(stock).flatten.first)
      ours.each { |outcome| puts [seconds, outcome, stock].inspect unless outcome == stock }
    end
  RUBY

  # Another gem's scheduler, which keeps running: Ruby 3.4 and later do not call it for TCPSocket.open.
  def test_under_async
    reason = Hosts.missing(:async)
    skip reason if reason

    load_path = [File.expand_path("..", __dir__), *ENV["RUBYLIB"]].join(":")
    all = outcomes(<<~RUBY, gems: true, env: {"RUBYLIB" => load_path})
      require "support/hosts"
      late, threads = 0, Thread.list.size
      now = -> { Heddle::Clock.now }
      outcomes = Hosts.run(:async) do |spawn|
        others = #{TRIES}.map { |way, host| [way, host, spawn.call { try(host, #{WAYS}[way]) }] }
        stopped = spawn.call { try("silent.test", "http.open_timeout = nil") }
        10.times do
          began = now.call
          sleep(0.03)
          late = [late, now.call - began].max
        end
        stopped.cancel
        others.map { |way, host, task| [way, host, task.value] }
      end
      abort "the others stood still for \#{late} s" if late > 0.3
      limit = now.call + 10
      sleep(0.01) while Thread.list.size > threads && now.call < limit
      abort "threads are left: \#{Thread.list}" if Thread.list.size > threads
    RUBY
    assert_all_in_time(all)
  end

  # One address: stock before net-http 0.2.1 tries several one after another.
  def test_errors_have_stocks_message
    stock, ours = %w[disable enable].map do |switch|
      outcomes("Heddle::NetHTTP.#{switch}\noutcomes = {'one.test' => try('one.test', ''), 'tls' => try('one.test', " \
        "'http.use_ssl = true')}")
    end
    assert_equal stock.transform_values { |outcome| outcome.first(2) },
      ours.transform_values { |outcome| outcome.first(2) }
  end

  # The kernel gives up after 3 s, once.
  def test_the_kernels_own_connect_timeout
    stock, ours = %w[disable enable].map do |switch|
      in_background do
        outcomes("Heddle::NetHTTP.#{switch}\noutcomes = [try('192.0.2.1', 'http.open_timeout = nil'), " \
          "try('192.0.2.1', 'http.open_timeout = 20')]")
      end
    end.map(&:value)
    assert_equal stock.map { |outcome| outcome.first(2) }, ours.map { |outcome| outcome.first(2) }
    ours.each { |_, _, seconds| assert_operator seconds, :<, stretched(5.5) }
  end

  # The timeout of one connect does not stay for another that set none.
  def test_other_connects_are_unaffected
    out = assert_child(<<~RUBY, launcher: network.launcher)
      #{PROGRAM}
      try("127.0.0.1", "http.use_ssl = true") # refused, an address: nothing is looked up
      p Thread.current.keys.grep(/heddle/)
    RUBY
    assert_equal "[]\n", out
  end

  private

  def network = @network ||= dead_network(zone: ZONE)

  def outcomes(code, **options)
    JSON.parse(assert_child("#{PROGRAM}\n#{code}\nputs JSON.generate(outcomes)", launcher: network.launcher, **options))
  end

  # The kernel gives up after 3 s, the resolver after 10.
  def assert_all_in_time(all)
    assert_equal TRIES, all.map { |way, host, _| [way, host] }
    all.each do |way, host, (error, message, seconds)|
      assert_equal "Net::OpenTimeout", error, "#{way}: #{message}"
      assert_match(/\AFailed to open TCP connection to #{Regexp.escape(host)}:443 \(/, message)
      assert_includes 0.35..stretched(1.1), seconds, "#{way}, #{host}"
    end
  end
end

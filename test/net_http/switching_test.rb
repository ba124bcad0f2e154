# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "delegate"
require "support/scripted_http_server"
require "heddle/net_http"

runs_on also: %i[yjit], except: %i[portable]

# Switching the fast path on and off, and leaving to stock what a program has overridden.
class SwitchingTest < Minitest::Test
  include LoopHelpers

  mode :thread

  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze

  def setup
    Heddle::NetHTTP.enable
    @server = ScriptedHTTPServer.new
    @server.play([[REPLY] * 20] * 20)
    @before = Heddle::NetHTTP.stats
  end

  def teardown
    Heddle::NetHTTP.enable
    @server.close
  end

  def test_switched_on
    assert Heddle::NetHTTP.enabled?
    get { |http| assert_operator socket(http).class, :<, Net::BufferedIO }
    assert_operator fast, :>, 0
    assert_empty fallbacks
  end

  def test_switched_off
    Heddle::NetHTTP.disable
    refute Heddle::NetHTTP.enabled?
    refute Net::HTTP.const_defined?(:BufferedIO, false)
    get { |http| assert_equal Net::BufferedIO, socket(http).class }
    assert_equal 0, fast
    Heddle::NetHTTP.disable # twice is no error
  end

  def test_open_connections_follow
    get do |http|
      Heddle::NetHTTP.disable
      reached = fast
      assert_equal "hello", http.get("/").body
      assert_equal reached, fast
      assert_operator fallbacks[:disabled], :>, 0
    end
  end

  def test_one_object
    Heddle::NetHTTP.disable
    http = Heddle::NetHTTP.for(Net::HTTP.new("127.0.0.1", @server.port, nil))
    http.start { assert_equal "hello", http.get("/").body }
    assert_operator fast, :>, 0
    reached = fast
    get
    assert_equal reached, fast
  end

  def test_one_object_that_is_connected
    Heddle::NetHTTP.disable
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      assert_equal "hello", http.get("/").body
      Heddle::NetHTTP.for(http)
      assert_equal "hello", http.get("/").body
    end
    assert_operator fast, :>, 0
  end

  def test_no_net_http
    assert_raises(ArgumentError) { Heddle::NetHTTP.enable(String) }
    assert_raises(ArgumentError) { Heddle::NetHTTP.enable(segment: 0) }
  end

  def test_debug_output
    log = StringIO.new
    http = Net::HTTP.new("127.0.0.1", @server.port, nil)
    http.set_debug_output(log)
    http.start { http.get("/") }
    assert_includes log.string, %(-> "hello")
    assert_operator fallbacks[:debug_output], :>, 0
  end

  def test_a_method_of_one_socket
    called = 0
    get do |http|
      socket(http).define_singleton_method(:rbuf_fill) do
        called += 1
        super()
      end
      assert_equal "hello", http.get("/").body
    end
    assert_operator called, :>, 0
    assert_operator fallbacks[:override], :>, 0
  end

  def test_an_io_of_an_unknown_class
    get do |http|
      other = Class.new(SimpleDelegator) # knows read_nonblock, and is no socket
      socket(http).instance_variable_set(:@io, other.new(socket(http).io))
      assert_equal "hello", http.get("/").body
    end
    assert_operator fallbacks[:io], :>, 0
  end

  def test_bytes_that_the_io_read_ahead
    get do |http|
      io = socket(http).io
      io.ungetbyte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
      assert_equal "hi", http.get("/").body
    end
    assert_operator fallbacks[:buffered], :>, 0
  end

  # In separate processes, since reopened classes stay so.
  {
    "reopened" => "class Net::BufferedIO; def rbuf_fill = ($called = true) && @rbuf << @io.readpartial(1); end",
    "prepended" => "Net::BufferedIO.prepend(Module.new { def rbuf_fill = ($called = true) && super })"
  }.each do |how, patch|
    %i[before after].each do |order|
      define_method(:"test_a_class_that_is_#{how}_#{order}") do
        steps = ["require 'heddle/net_http'", patch]
        steps.reverse! if order == :before
        out = assert_child(<<~RUBY)
          require "net/http"
          #{steps.join("\n")}
          puts Net::HTTP.get(URI("http://127.0.0.1:#{@server.port}/")), $called.inspect
          puts Heddle::NetHTTP.stats[:fallback].key?(:override)
        RUBY
        assert_equal %w[hello true true], out.split
      end
    end
  end

  def test_by_the_environment
    out = assert_child(<<~RUBY, env: {"RUBYOPT" => "-I#{ROOT}/lib -rheddle/net_http/auto"})
      puts defined?(Net::HTTP).inspect
      require "net/http"
      puts Net::HTTP.get(URI("http://127.0.0.1:#{@server.port}/")), Heddle::NetHTTP.stats[:fast] > 0
    RUBY
    assert_equal %w[nil hello true], out.split
  end

  def test_switching_prints_nothing
    outcome = in_child("require 'heddle/net_http'; Heddle::NetHTTP.disable; 2.times { Heddle::NetHTTP.enable }; " \
      "require 'net/http'", env: {"RUBYOPT" => "-w"})
    assert_predicate outcome.status, :success?
    refute_match(/heddle.*warning/, outcome.err)
  end

  # Other Ractors get what stock gives them: an answer since net-http 0.7, an error before.
  def test_other_ractors
    stock, ours = ["net/http", "heddle/net_http"].map do |library|
      assert_child(<<~RUBY)
        require #{library.inspect}
        Warning[:experimental] = false
        ractor = Ractor.new(#{@server.port}) do |port|
          Net::HTTP.start("127.0.0.1", port, nil, nil, nil, nil, read_timeout: 5) { |http| http.get("/").body }
        rescue => error
          error.class.name
        end
        puts ractor.respond_to?(:value) ? ractor.value : ractor.take
        # Ruby 4.0 sometimes hangs at the end of a program with a Ractor that used Timeout, without Heddle too.
        $stdout.flush
        exit!(0)
      RUBY
    end
    assert_equal stock, ours
    assert_equal "hello\n", ours if RUBY_VERSION >= "4.0"
  end

  # RubyGems carries its own copy since Ruby 3.3.
  def test_the_copy_of_rubygems
    begin
      require "rubygems/vendored_net_http"
    rescue LoadError
      skip "RubyGems #{Gem::VERSION} uses Ruby's own Net::HTTP"
    end
    Heddle::NetHTTP.enable(Gem::Net::HTTP)
    assert_equal "hello", Gem::Net::HTTP.start("127.0.0.1", @server.port, nil) { |http| http.get("/").body }
    assert_operator fast, :>, 0
    error = assert_raises(Gem::Net::ReadTimeout) do
      @server.play([[REPLY, {pieces: [], ending: nil}, REPLY]])
      Gem::Net::HTTP.start("127.0.0.1", @server.port, nil, nil, nil, nil, read_timeout: 0.05, max_retries: 0) do |http|
        2.times { http.get("/") }
      end
    end
    assert_kind_of TCPSocket, error.io
  ensure
    Heddle::NetHTTP.disable(Gem::Net::HTTP) if defined?(Gem::Net::HTTP)
  end

  def test_many_threads_switch
    @server.play([[REPLY]] * 100)
    threads = Array.new(4) do
      Thread.new do
        20.times do |i|
          i.odd? ? Heddle::NetHTTP.enable : Heddle::NetHTTP.disable
          assert_equal "hello", Net::HTTP.get(URI("http://127.0.0.1:#{@server.port}/"))
        end
      end
    end
    threads.each(&:join)
  end

  private

  def get
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      assert_equal "hello", http.get("/").body
      yield http if block_given?
    end
  end

  def socket(http) = http.instance_variable_get(:@socket)

  def fast = Heddle::NetHTTP.stats[:fast] - @before[:fast]

  def fallbacks
    Heddle::NetHTTP.stats[:fallback].to_h { |reason, count| [reason, count - @before[:fallback].fetch(reason, 0)] }
      .reject { |_, count| count.zero? }
  end
end

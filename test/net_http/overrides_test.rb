# frozen_string_literal: true

require "test_helper"
require "socket"
require "stringio"
require "support/loop_helpers"
require "support/scripted_http_server"
require "heddle/net_http"

runs_on also: %i[yjit], except: %i[portable]

# A program's override is called, wherever it is: in a subclass, on one object, in its own String, in a module in
# front.
class NetHTTPOverridesTest < Minitest::Test
  include LoopHelpers

  mode :thread

  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze
  CONNECTS = (Net::HTTP::VERSION == "0.2.0") ? "Socket" : "TCPSocket"
  AT_EXIT = "at_exit { print $called }"

  # Lets another thread override a method when the first of two changes has been judged, and not been told yet.
  module Meanwhile
    class << self
      attr_accessor :block
    end

    def groups
      super.tap do
        block, Meanwhile.block = Meanwhile.block, nil
        block&.call
      end
    end
  end

  # How programs keep the case of names.
  class CaseSensitive < Net::HTTP::Get
    def initialize_http_header(fields)
      @header = {}
      fields&.each { |name, value| @header[name.to_s] = [value] }
    end

    def [](name) = @header[name.to_s]&.first

    def []=(name, value)
      @header[name.to_s] = [value]
    end

    def capitalize(name) = name
  end

  class Untouched < String
    def downcase(*) = self

    def capitalize(*) = self

    def split(*) = [self]

    def to_s = self
  end

  class WithField < Net::HTTP::Get
    def initialize_http_header(fields)
      super
      @header["x-added"] = ["1"]
    end
  end

  def setup
    Heddle::NetHTTP.enable
    @server = ScriptedHTTPServer.new
    @server.play([[REPLY] * 20] * 20)
  end

  def teardown
    @server.close
  end

  def test_a_change_while_another_is_judged
    Heddle::NetHTTP.const_get(:PatchDetector).prepend(Meanwhile)
    length = Net::HTTPHeader.instance_method(:content_length)
    called = false
    override = -> {
      Net::HTTPHeader.define_method(:content_length) do
        called = true
        length.bind_call(self)
      end
    }
    Meanwhile.block = -> { Thread.new(&override).join }
    Net::HTTP::Get.define_singleton_method(:heddle_changes) { nil }
    assert_nil Meanwhile.block
    assert_equal "hello", Net::HTTP.get("127.0.0.1", "/", @server.port)
    assert called
  ensure
    Net::HTTP::Get.singleton_class.remove_method(:heddle_changes)
    Net::HTTPHeader.define_method(:content_length, length)
  end

  # What the C code looks up is made anew then; the old table is garbage while a thread may still search it.
  def test_a_method_that_changes_while_other_threads_make_requests
    made = 0
    ended = false
    threads = Array.new(2) do
      Thread.new do
        until ended
          Net::HTTP::Get.new("/")
          made += 1
        end
      end
    end
    60.times do
      4.times { Net::HTTP::Get.define_singleton_method(:heddle_changes) { nil } }
      GC.start
      Array.new(30) { Array.new(20).to_h { |one| [one.object_id, one] } } # takes the memory that became free
    end
    ended = true
    threads.each(&:join)
    assert_operator made, :>, 100
  ensure
    ended = true
    Net::HTTP::Get.singleton_class.remove_method(:heddle_changes)
  end

  def test_a_request_that_keeps_the_case_of_names
    assert_includes head_of(CaseSensitive.new("/", "soapAction" => "x")), "\r\nsoapAction: x\r\n"
  end

  def test_header_names_keep_their_case
    assert_includes head_of(Net::HTTP::Get.new("/", Untouched.new("soapAction") => "x")), "\r\nsoapAction: x\r\n"
    request = Net::HTTP::Get.new("/")
    request.instance_variable_get(:@header)[Untouched.new("soapAction")] = ["x"]
    assert_includes head_of(request), "\r\nsoapAction: x\r\n"
  end

  def test_a_subclass_that_adds_a_field
    assert_includes head_of(WithField.new("/")), "\r\nX-Added: 1\r\n"
  end

  def test_a_method_of_one_request
    request = Net::HTTP::Get.new("/", "soapaction" => "x")
    request.define_singleton_method(:capitalize, &:upcase)
    assert_includes head_of(request), "\r\nSOAPACTION: x\r\n"
  end

  # As net-http-pipeline does.
  def test_requests_begun_before_the_first_is_answered
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      socket = http.instance_variable_get(:@socket)
      requests = Array.new(2) { Net::HTTP::Get.new("/") }
      requests.each do |request|
        http.send(:begin_transport, request)
        request.exec(socket, "1.1", request.path)
      end
      requests.each do
        reply = Net::HTTPResponse.read_new(socket)
        reply.reading_body(socket, true) { assert_equal "hello", reply.read_body }
      end
      assert_same socket, http.instance_variable_get(:@socket)
    end
  end

  # In separate processes, since reopened classes stay so; before Heddle is switched on, and after.
  {
    "a class of responses" => ["Net::HTTPResponse.class_eval { def content_length = 1 }", "h"],
    "one class of responses" => ["Net::HTTPOK.class_eval { private def read_body_0(dest) = (super; dest.upcase!) }",
      "HELLO"],
    "a class of one status" =>
      ["Net::HTTPOK.class_eval { def chunked? = ($called = true) && super }; #{AT_EXIT}", "hellotrue"],
    "how responses are chosen" =>
      ["Net::HTTPResponse.singleton_class.prepend(Module.new { " \
        "def response_class(*) = Class.new(super) { def body = 'other' } })", "other"],
    "requests" =>
      ["Net::HTTPGenericRequest.class_eval { def capitalize(name) = ($called = true) && name.upcase }; #{AT_EXIT}",
        "hellotrue"],
    "a class of requests" =>
      ["Net::HTTP::Get.class_eval { def write_header(*) = ($called = true) && super }; #{AT_EXIT}", "hellotrue"],
    "the method that makes a client" =>
      ["Net::HTTP.class_eval { def initialize(address, port) = " \
        "(@address, @port, @path, @open_timeout = address, port, 1, 5) }; at_exit { print $made }", "hello5"],
    "the method that connects" =>
      ["#{CONNECTS}.prepend(Module.new { def initialize(*, **) = ($called = true) && super }); #{AT_EXIT}",
        "hellotrue"],
    "the method that reads a socket" =>
      ["#{CONNECTS}.prepend(Module.new { def read_nonblock(...) = ($called = true) && super }); #{AT_EXIT}",
        "hellotrue"],
    "the method that writes to any socket" =>
      ["BasicSocket.prepend(Module.new { def write_nonblock(...) = ($called = true) && super }); #{AT_EXIT}",
        "hellotrue"],
    "the class of a socket" =>
      ["#{CONNECTS}.class_eval { def read_nonblock(...) = ($called = true) && super }; #{AT_EXIT}", "hellotrue"]
  }.each do |what, (patch, expected)|
    %i[before after].each do |order|
      define_method(:"test_#{what.tr(" ", "_")}_#{order}") do
        steps = ["require 'heddle/net_http'", patch]
        steps.reverse! if order == :before
        out = assert_child(<<~RUBY)
          require "net/http"
          #{steps.join("\n")}
          print Net::HTTP.start("127.0.0.1", #{@server.port}, nil) { |http|
            ($made = http.open_timeout) && http.get("/").body
          }
        RUBY
        assert_equal expected, out
      end
    end
  end

  # A stub that has ended leaves nothing behind.
  def test_a_method_that_is_removed_again
    out = assert_child(<<~RUBY)
      require "heddle/net_http"
      fast = lambda do
        before = Heddle::NetHTTP.stats[:fast]
        Net::HTTP.start("127.0.0.1", #{@server.port}, nil) { |http| http.get("/") }
        Heddle::NetHTTP.stats[:fast] > before
      end
      places = [BasicSocket, Net::BufferedIO]
      seen = [fast.call]
      places.each do |place|
        own = place.instance_methods(false).include?(:eof?)
        stock = place.instance_method(:eof?)
        place.define_method(:eof?) { true }
        seen << fast.call
        own ? place.define_method(:eof?, stock) : place.remove_method(:eof?)
        seen << fast.call
      end
      p seen
    RUBY
    assert_equal "[true, false, true, false, true]\n", out
  end

  # A proxy is looked up where stock does, through any override there.
  {
    "method" => "ENV.singleton_class.prepend(Module.new { def [](name) = (name == 'http_proxy') ? PROXY : super })",
    "hash" => "Object.send(:remove_const, :ENV); ENV = {'http_proxy' => PROXY}",
    "way to look" => "URI::Generic.prepend(Module.new { def find_proxy(*) = URI(PROXY) })"
  }.each do |what, patch|
    define_method(:"test_a_#{what.tr(" ", "_")}_in_place_of_the_environments") do
      out = assert_child(<<~RUBY, env: {"http_proxy" => nil, "HTTP_PROXY" => nil, "no_proxy" => nil})
        require "heddle/net_http"
        PROXY = "http://127.0.0.1:#{@server.port}"
        Net::HTTP.new("192.0.2.1").proxy?
        #{patch}
        print Net::HTTP.get(URI("http://192.0.2.1/asked"))
      RUBY
      assert_equal "hello", out
      assert_match %r{\AGET http://192.0.2.1/asked }, @server.received.last.first
    end
  end

  # Classes that were checked are watched; other Ractors' changes to their own do not matter.
  def test_classes_of_other_ractors
    out = assert_child(<<~RUBY)
      require "heddle/net_http"
      Warning[:experimental] = false
      ractor = Ractor.new { Class.new(TCPSocket) { def foo = 1 }.instance_methods(false) }
      p ractor.respond_to?(:value) ? ractor.value : ractor.take
    RUBY
    assert_equal "[:foo]\n", out
  end

  # Nothing in a new client shows who made it.
  def test_new_clients_look_like_stock
    subclass = Class.new(Net::HTTP)
    made = [-> { Heddle::NetHTTP.disable }, -> { Heddle::NetHTTP.enable }].map do |switch|
      switch.call
      [Net::HTTP.new("host"), Net::HTTP.new("host", 81), subclass.new("host"), Net::HTTP.new("host", nil, "proxy", 80)]
        .map { |http| http.instance_variables.to_h { |name| [name, http.instance_variable_get(name)] }.to_a }
    end
    assert_equal made.first, made.last
  end

  # The C code collects most heads in 1024 bytes.
  def test_heads_of_all_lengths
    reader, writer = UNIXSocket.pair
    ours = Net::HTTP.const_get(:BufferedIO).new(writer)
    [*800..1030, 2000, 5000].each do |length|
      [{"A" => "b" * length}, {"A" => "b", "C" => "d" * (length / 2), "E" => "f" * (length / 2)}].each do |fields|
        request = Net::HTTP::Get.new("/", fields)
        request.exec(Net::BufferedIO.new(stocks = StringIO.new), "1.1", "/path")
        request.exec(ours, "1.1", "/path")
        assert_equal stocks.string, reader.readpartial(8192), length
      end
    end
  ensure
    [reader, writer].each(&:close)
  end

  # Names, encodings and ports that are written in different ways.
  def test_the_field_host
    http = Net::HTTP.start("127.0.0.1", @server.port)
    names = ["127.0.0.1", "a.example".encode("US-ASCII"), "\u00e4.example", "::1", "b\0c", Untouched.new("d.example")]
    names.product([80, 443, 81, "82"], [false, true]) do |name, port, ssl|
      {:@address => name, :@port => port, :@use_ssl => ssl}
        .each { |variable, value| http.instance_variable_set(variable, value) }
      expected = http.send(:addr_port)
      host = host_of(http)
      assert_equal [expected, expected.encoding, expected.class], [host, host.encoding, host.class], [name, port, ssl]
    end
    Net::HTTP.class_eval do
      alias_method :own_addr_port, :addr_port
      define_method(:addr_port) { "mine" }
    end
    assert_equal "mine", host_of(http)
  ensure
    Net::HTTP.class_eval do
      alias_method :addr_port, :own_addr_port
      private :addr_port
      remove_method :own_addr_port
    end
  end

  # Where stock has to start it, stock makes it.
  def test_only_one_client_is_made
    out = assert_child(<<~RUBY)
      require "heddle/net_http"
      Net::HTTP.class_eval { def proxy? = false }
      made = 0
      counted = Class.new(Net::HTTP) { define_method(:initialize) { |*arguments| (made += 1) && super(*arguments) } }
      begin
        counted.start("127.0.0.1", 1, open_timeout: 1) { raise "connected" }
      rescue SystemCallError
        print made
      end
    RUBY
    assert_equal "1", out
  end

  def test_a_default_configuration
    skip "net-http #{Net::HTTP::VERSION} has none" unless Net::HTTP.respond_to?(:default_configuration)

    Net::HTTP.default_configuration = {read_timeout: 7}
    assert_equal 7, Net::HTTP.new("host").read_timeout
  ensure
    Net::HTTP.default_configuration = nil if Net::HTTP.respond_to?(:default_configuration)
  end

  # Net::HTTP.Proxy makes a class each time.
  def test_classes_without_a_name_are_not_kept
    out = assert_child(<<~RUBY)
      require "heddle/net_http"
      start = -> { Class.new(Net::HTTP).start("127.0.0.1", #{@server.port}, nil, nil, nil, nil, read_timeout: 5) {} }
      20.times { Thread.new(&start).join }
      GC.start
      p ObjectSpace.each_object(Net::HTTP.singleton_class).count
    RUBY
    assert_operator Integer(out), :<, 12
  end

  def test_objects_have_no_public_require
    out = assert_child("p Object.new.respond_to?(:require)", env: {"RUBYOPT" => "-I#{ROOT}/lib -rheddle/net_http/auto"})
    assert_equal "false\n", out
  end

  private

  def host_of(http)
    request = Net::HTTP::Get.new("/")
    http.send(:begin_transport, request)
    request.instance_variable_get(:@header)["host"].first
  end

  def head_of(request)
    Net::HTTP.start("127.0.0.1", @server.port, nil) { |http| assert_equal "hello", http.request(request).body }
    @server.received.last.first
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/scripted_http_server"
require "heddle/net_http"

runs_on also: %i[yjit], except: %i[portable]

# Programs keep a method under another name and put their own in its place, which calls the one that they kept: httplog
# does so with connect, stubs with any method. Their method, ours and the library's are each called once.
class NetHTTPKeptMethodsTest < Minitest::Test
  include LoopHelpers

  mode :thread

  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze

  # Every method that ours replaces, by its class.
  METHODS = <<~RUBY
    METHODS = {
      Net::HTTP => %i[connect begin_transport transport_request proxy_uri initialize],
      Net::HTTP.singleton_class => %i[start],
      Net::HTTPResponse.singleton_class => %i[read_new], Net::HTTPResponse => %i[read_body_0],
      Net::HTTPGenericRequest => %i[exec initialize]
    }
    def each_method(&block) = METHODS.each { |place, names| names.each { |name| block.call(place, name) } }
  RUBY

  # What programs do with each, and undo.
  PATCHES = {
    "alias" => <<~RUBY,
      place.alias_method :"kept_\#{name}", name
      place.define_method(name) do |*arguments, **options, &block|
        ($called << [place, name]) && send(:"kept_\#{name}", *arguments, **options, &block)
      end
    RUBY
    "object" => <<~RUBY,
      kept = (place == Net::HTTP.singleton_class) ? Net::HTTP.method(name).unbind : place.instance_method(name)
      place.define_method(name) do |*arguments, **options, &block|
        ($called << [place, name]) && kept.bind_call(self, *arguments, **options, &block)
      end
    RUBY
    "module" => <<~RUBY
      place.prepend(Module.new {
        define_method(name) do |*arguments, **options, &block|
          ($called << [place, name]) && super(*arguments, **options, &block)
        end
      })
    RUBY
  }.freeze

  # As the stubs of minitest and RSpec do: the last step aliases the method back.
  UNDO = <<~RUBY
    place.alias_method name, :"kept_\#{name}"
    place.remove_method :"kept_\#{name}"
  RUBY

  # As RSpec's any_instance does: a method is aliased back only if it was the class's own when the stub began.
  REMOVED = <<~RUBY
    owner = place.instance_method(name).owner
    visibility = place.private_method_defined?(name) ? :private : :public
    place.alias_method :"kept_\#{name}", name
    place.define_method(name) { |*arguments, **options, &block| send(:"kept_\#{name}", *arguments, **options, &block) }
    puts ask
    place.remove_method(name)
    if owner == place
      place.alias_method name, :"kept_\#{name}"
      place.send(visibility, name)
    end
    place.remove_method(:"kept_\#{name}")
    raise "\#{name} is not \#{visibility}" unless place.public_send(:"\#{visibility}_method_defined?", name)
  RUBY

  # With an object instead of a name.
  OBJECT = <<~RUBY
    kept = place.instance_method(name)
    place.define_method(name) { |*| raise "a stub" }
    place.define_method(name, kept)
  RUBY

  def setup
    @server = ScriptedHTTPServer.new
    @server.play([[REPLY] * 20] * 20)
  end

  def teardown = @server.close

  PATCHES.each do |how, patch|
    %i[before after].each do |order|
      define_method(:"test_#{how}_#{order}") do
        out = child(order, <<~RUBY)
          $called = []
          each_method { |place, name| #{patch} }
        RUBY
        assert_equal %w[hello hello true], out.first(3)
        assert_empty out.drop(3), "methods that were not called"
      end
    end
  end

  def test_a_restored_method
    [PATCHES["alias"] + UNDO, OBJECT].each do |patch|
      out = child(:after, "$called = nil\neach_method { |place, name| #{patch} }")
      assert_equal %w[hello hello true], out
    end
  end

  %i[before after].each do |order|
    define_method(:"test_a_removed_override_#{order}") do
      out = child(order, "$called = nil\neach_method { |place, name| #{REMOVED} }")
      assert_equal ["hello"] * 12 + ["true"], out
    end
  end

  # OpenTelemetry puts a module in front of connect, httplog keeps it: both call ours, which still does the work.
  %w[alias object module].each do |how|
    define_method(:"test_#{how}_keeps_the_fast_path") do
      out = child(:after, <<~RUBY)
        fast = -> { !!Heddle::NetHTTP.const_get(:Library).http_of(Net::HTTP, :transport) }
        puts fast.call
        $called = []
        each_method { |place, name| #{PATCHES[how]} }
        puts fast.call
      RUBY
      assert_equal %w[true true], out.first(2)
    end
  end

  # By alias, with the whole life of a stub around it.
  def test_minitests_stub
    library = Gem.loaded_specs.fetch("minitest").full_require_paths.join(":")
    out = child(:after, <<~RUBY, env: {"RUBYLIB" => [library, *ENV["RUBYLIB"]].join(":")})
      require "minitest"
      require "minitest/mock"
      $called = nil
      stubbed =
        Net::HTTP.stub(:start, :stubbed) { [Net::HTTP.start("x"), Net::HTTP.start("127.0.0.1", 1, open_timeout: 1)] }
      raise stubbed.inspect unless stubbed == %i[stubbed stubbed]
    RUBY
    assert_equal %w[hello hello true], out
  end

  # As tests do it by hand. A restored method that calls the saved one is as good as any other method.
  def test_start_replaced_by_hand
    out = child(:after, <<~RUBY)
      original = Net::HTTP.method(:start)
      2.times do
        Net::HTTP.singleton_class.define_method(:start) { |*| :stubbed }
        raise "not stubbed" unless ask == :stubbed
        Net::HTTP.singleton_class.define_method(:start) do |*arguments, **options, &block|
          original.call(*arguments, **options, &block)
        end
        puts ask
        Net::HTTP.singleton_class.define_method(:start, original)
      end
      $called = nil
    RUBY
    assert_equal %w[hello hello hello hello true], out
  end

  # Switched off and on meanwhile.
  %w[alias object].each do |how|
    define_method(:"test_#{how}_in_between") do
      out = child(:after, <<~RUBY)
        $called = []
        start = Net::HTTP.method(:start)
        Heddle::NetHTTP.disable
        Net::HTTP.define_singleton_method(:start) do |*arguments, **options, &block|
          start.call(*arguments, **options, &block)
        end
        each_method { |place, name| #{PATCHES[how]} }
        Heddle::NetHTTP.enable
        Heddle::NetHTTP.disable
        puts ask
        Heddle::NetHTTP.enable
      RUBY
      assert_equal %w[hello hello hello true], out
    end
  end

  private

  def child(order, patch, **options)
    steps = ["require 'heddle/net_http'", patch]
    steps.reverse! if order == :before
    assert_child(<<~RUBY, **options).split("\n")
      require "net/http"
      #{METHODS}
      def ask
        Net::HTTP.start("127.0.0.1", #{@server.port}, nil, nil, nil, nil, read_timeout: 5) { |http| http.get("/").body }
      end
      #{steps.join("\n")}
      before = Heddle::NetHTTP.stats[:fast]
      puts ask, Net::HTTP.get(URI("http://127.0.0.1:#{@server.port}/"))
      puts !!($called || Heddle::NetHTTP.stats[:fast] > before)
      each_method { |place, name| puts [place, name].inspect unless $called.include?([place, name]) } if $called
    RUBY
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/scripted_http_server"

runs_on except: %i[portable]

# The classes of Net::HTTP after ours have replaced methods there, however that went.
class NetHTTPReplacedMethodsTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :thread

  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze

  def setup
    @server = ScriptedHTTPServer.new
    @server.play([[REPLY]] * 3000)
  end

  def teardown = @server.close

  # An exception at each line: then Net::HTTP works, and may be enabled.
  def test_an_exception_at_each_step_of_enable
    out = child(<<~RUBY)
      #{VISIBLE}
      require "heddle"
      require "heddle/net_http/installation"
      FOLDER = File.dirname(Heddle::NetHTTP.const_source_location(:Installation).first)
      SOURCE = File.expand_path("../net_http.rb", FOLDER)
      SOURCES = %w[installation replacing].map { |name| File.join(FOLDER, "\#{name}.rb") }
      class Interrupted < Exception; end

      # Returns whether there was a step with this number. A step that was taken before does not count.
      def interrupt(number)
        seen = {}
        trace = TracePoint.new(:line) do |point|
          next unless SOURCES.include?(point.path)
          next if seen[key = [point.path, point.lineno, point.event, point.method_id]]
          seen[key] = true
          raise Interrupted if seen.size == number
        end
        trace.enable { load SOURCE }
        false
      rescue Interrupted
        true
      end

      def failure(number, before)
        return :done unless interrupt(number)
        return :request unless ask == "hello"
        return visible - before | before - visible unless visible == before
        Heddle::NetHTTP.enable
        fast = Heddle::NetHTTP.stats[:fast]
        return :request_when_enabled unless ask == "hello"
        return :stock unless Heddle::NetHTTP.stats[:fast] > fast
        replaced = Net::HTTP.private_instance_methods(false).grep(/(.*)_without_heddle(\\??)/) { :"\#{$1}\#{$2}" }
        theirs = replaced.select { |name|
          Net::HTTP.instance_method(name).source_location&.first.to_s.end_with?("net/http.rb")
        }
        return [:not_replaced, replaced, theirs] unless replaced.size == 8 && theirs.empty?
        return visible - before | before - visible unless visible == before
        Heddle::NetHTTP.disable
        return :request_when_disabled unless ask == "hello"
      end

      before = visible
      number = 0
      loop do
        numbers = Array.new(2) { number += 1 }
        outcomes = numbers.map { |one|
          reader, writer = IO.pipe
          fork do
            outcome = begin
              failure(one, before)
            rescue Exception => error
              error.full_message(highlight: false)
            end
            writer.write(Marshal.dump(outcome))
            writer.close
            exit!
          end
          writer.close
          reader
        }.map { |reader| Marshal.load(reader.read) }
        Process.waitall
        outcomes.each_with_index { |outcome, i| puts "step \#{numbers[i]}: \#{outcome}" if outcome && outcome != :done }
        break if outcomes.include?(:done)
      end
      puts number > 30
    RUBY
    assert_equal "true\n", out
  end

  # A program that had made a private method public still calls it.
  def test_visibility
    out = child(<<~RUBY)
      Net::HTTP.send(:public, :begin_transport, :connect)
      Net::HTTP.send(:private, :proxy_uri)
      #{VISIBLE}
      before = visible
      require "heddle/net_http"
      puts visible - before, before - visible, ask
      Heddle::NetHTTP.disable
      puts visible - before, before - visible, ask
    RUBY
    assert_equal "hello\nhello\n", out
  end

  # A module in front has its own.
  def test_visibility_behind_a_module
    out = child(<<~RUBY)
      Net::HTTP.prepend(Module.new { def connect = super })
      private_methods = Net::HTTP.private_instance_methods(false)
      require "heddle/net_http"
      p private_methods - Net::HTTP.private_instance_methods(false)
      puts ask
    RUBY
    assert_equal "[]\nhello\n", out
  end

  # What stood in the place of ours before gets the same arguments.
  def test_keywords_for_a_method_that_takes_them
    out = child(<<~RUBY)
      class Net::HTTP
        class << self
          alias_method :plain_start, :start
          def start(address, port = nil, *proxy, **options, &block)
            p options
            plain_start(address, port, *proxy, options, &block)
          end
        end
      end
      require "heddle/net_http"
      puts Net::HTTP.start("127.0.0.1", #{@server.port}, read_timeout: 5) { |http| http.get("/").body }
    RUBY
    assert_equal "#{{read_timeout: 5}.inspect}\nhello\n", out
  end

  # And the same block.
  def test_a_block_for_a_method_that_gives_it_another_self
    out = child(<<~RUBY)
      class Net::HTTP
        alias_method :plain_transport_request, :transport_request
        def transport_request(request, &block)
          $block = block
          plain_transport_request(request, &block)
        end
      end
      require "heddle/net_http"
      puts ask, $block.lambda?, $block.source_location.first.end_with?("net/http.rb")
    RUBY
    assert_equal "hello\nfalse\ntrue\n", out
  end

  # An alias of a method that the class has from a module.
  def test_a_method_that_belongs_to_a_module
    out = child(<<~RUBY)
      module Kept
        def kept_connect = plain_connect
      end
      class Net::HTTP
        alias_method :plain_connect, :connect
        include Kept
        alias_method :connect, :kept_connect
      end
      require "heddle/net_http"
      puts ask
    RUBY
    assert_equal "hello\n", out
  end

  def test_a_refinement
    out = child(<<~RUBY)
      module Refined
        refine(Net::HTTP) { def proxy_uri = [super, :refined] }
      end
      require "heddle/net_http"
      using Refined
      p Net::HTTP.new("127.0.0.1").proxy_uri
      puts ask
    RUBY
    assert_equal "[nil, :refined]\nhello\n", out
  end

  # A class that a program has put in the place of ours stays.
  def test_a_buffered_io_of_the_program
    out = child(<<~RUBY)
      Net::HTTP::BufferedIO = Class.new(Net::BufferedIO) { def readuntil(*, **) = ($called = true) && super }
      require "heddle/net_http"
      puts ask, $called
      Heddle::NetHTTP.disable
      puts Net::HTTP.const_defined?(:BufferedIO, false), ask
    RUBY
    assert_equal "hello\ntrue\ntrue\nhello\n", out
  end

  # What could not be judged is left to the library.
  def test_an_exception_while_a_change_is_judged
    out = child(<<~RUBY)
      require "heddle/net_http"
      Net::BufferedIO.send(:alias_method, :stock_readuntil, :readuntil)
      class Interrupted < Exception; end
      trace = TracePoint.new(:call) { |point| raise Interrupted if point.method_id == :groups }
      begin
        trace.enable do
          class Net::BufferedIO
            def readuntil(*given, **options) = ($called = true) && stock_readuntil(*given, **options)
          end
        end
      rescue Interrupted
        puts "interrupted"
      end
      puts ask, $called
    RUBY
    assert_equal "interrupted\nhello\ntrue\n", out
  end

  VISIBLE = <<~RUBY
    def visible
      [Net::HTTP, Net::HTTPResponse, Net::HTTPGenericRequest].flat_map { |klass| [klass, klass.singleton_class] }
        .flat_map { |place|
          {public: place.public_instance_methods, private: place.private_instance_methods}.flat_map { |kind, names|
            names.map { |name| [place.inspect, kind, name].join(" ") }
          }
        }.reject { |text| text.include?("_without_heddle") }.sort
    end
  RUBY

  private

  def child(code)
    assert_child(<<~RUBY)
      require "net/http"
      require "openssl" # heddle/net_http loads it, and it defines Kernel#Digest
      def ask
        Net::HTTP.start("127.0.0.1", #{@server.port}, nil, nil, nil, nil, read_timeout: 5) { |http| http.get("/").body }
      end
      #{code}
    RUBY
  end
end

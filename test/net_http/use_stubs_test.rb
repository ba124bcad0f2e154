# frozen_string_literal: true

require "test_helper"
require "json"
require "tmpdir"
require "support/loop_helpers"
require "support/scripted_http_server"

runs_on except: %i[portable newest_net_http]

# WebMock and VCR put their own classes in Net::HTTP's place. Whichever is loaded first: stubs answer stubbed
# requests, the others take the fast path, and each can be switched off without the other.
class NetHTTPStubsTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :thread

  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze
  HELPERS = <<~RUBY
    require "net/http"
    require "json"
    def get(url) = Net::HTTP.get(URI(url))
    def fast
      before = Heddle::NetHTTP.stats[:fast]
      [yield, Heddle::NetHTTP.stats[:fast] > before]
    end
  RUBY

  def setup
    @server = ScriptedHTTPServer.new
    @server.play([[REPLY] * 5] * 20)
  end

  def teardown = @server.close

  [%w[heddle/net_http webmock], %w[webmock heddle/net_http]].each do |first, second|
    define_method(:"test_webmock_#{first.tr("/", "_")}_first") do
      out = child(<<~RUBY)
        #{requires(first, second)}
        include WebMock::API
        WebMock.enable!
        WebMock.disable_net_connect!(allow: "127.0.0.1:#{@server.port}")
        stub_request(:get, "http://example.org/").to_return(body: "stubbed")
        seen = [get("http://example.org/"), fast { get("#{url}") }]
        Heddle::NetHTTP.disable
        seen << get("http://example.org/") << fast { get("#{url}") }
        Heddle::NetHTTP.enable
        WebMock.disable!
        seen << fast { get("#{url}") }
        WebMock.enable!
        seen << get("http://example.org/") << fast { get("#{url}") }
        WebMock.disable!
        Heddle::NetHTTP.disable
        seen << fast { get("#{url}") } << Net::HTTP.const_defined?(:BufferedIO, false)
        puts JSON.generate(seen)
      RUBY
      assert_equal ["stubbed", ["hello", true], "stubbed", ["hello", false], ["hello", true], "stubbed",
        ["hello", true], ["hello", false], false], JSON.parse(out)
    end
  end

  [%w[heddle/net_http vcr], %w[vcr heddle/net_http]].each do |first, second|
    define_method(:"test_vcr_#{first.tr("/", "_")}_first") do
      Dir.mktmpdir do |directory|
        out = child(<<~RUBY)
          #{requires(first, second)}
          VCR.configure do |config|
            config.cassette_library_dir = #{directory.inspect}
            config.hook_into :webmock
          end
          seen = [fast { VCR.use_cassette("hello") { get("#{url}") } }, VCR.use_cassette("hello") { get("#{url}") }]
          WebMock.allow_net_connect!
          seen << VCR.turned_off { fast { get("#{url}") } }
          puts JSON.generate(seen)
        RUBY
        assert_equal [["hello", true], "hello", ["hello", true]], JSON.parse(out)
        assert_equal 2, @server.received.size, "one answer came from the cassette"
      end
    end
  end

  private

  def url = "http://127.0.0.1:#{@server.port}/"

  def requires(*names) = names.map { |name| "require #{name.inspect}" }.join("\n")

  def child(code)
    assert_child("#{HELPERS}\n#{code}", gems: true).lines.last
  end
end

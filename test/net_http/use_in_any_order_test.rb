# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/scripted_http_server"

runs_on also: %i[yjit], except: %i[portable newest_net_http]

# Libraries that use or patch Net::HTTP, loaded before Heddle and after it: the fast path is taken either way.
class NetHTTPAnyOrderTest < Minitest::Test
  include LoopHelpers

  mode :thread

  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze

  # Gem, the code that loads it, and the code that makes a request with it.
  LIBRARIES = {
    "net-http-persistent" => ["require 'net/http/persistent'",
      "Net::HTTP::Persistent.new(name: 'x').request(URI(URL)).body"],
    "faraday-net_http" => ["require 'faraday'; require 'faraday/net_http'",
      "Faraday.new(URL) { |builder| builder.adapter :net_http }.get.body"],
    "aws-sdk-core" => [<<~LOAD, <<~RUBY],
      require '#{ROOT}/test/support/aws_beside_others'
      require 'seahorse/client/net_http/patches'
      Seahorse::Client::NetHttp::Patches.apply!
    LOAD
      request = Net::HTTP::Put.new("/", "Content-Type" => "x/y", "Content-Length" => "3")
      request.body_stream = StringIO.new("abc")
      Net::HTTP.start("127.0.0.1", URI(URL).port, nil, nil, nil, nil, continue_timeout: 1) do |http|
        http.request(request).body
      end
    RUBY
    nil => ["require 'open-uri'", "URI(URL).open(&:read)"]
  }.freeze

  def setup
    @server = ScriptedHTTPServer.new
    @server.play([[REPLY] * 5] * 10)
  end

  def teardown = @server.close

  # All at once, since loading them takes most of the time.
  %i[before after].each do |order|
    define_method(:"test_loaded_#{order}") do
      steps = [LIBRARIES.values.map(&:first).join("\n"), "require 'heddle/net_http'"]
      steps.reverse! if order == :after
      out = assert_child(<<~RUBY, gems: true)
        #{steps.join("\n")}
        URL = "http://127.0.0.1:#{@server.port}/"
        [#{LIBRARIES.values.map { |_, ask| "-> do\n#{ask}\nend" }.join(", ")}].each do |ask|
          before = Heddle::NetHTTP.stats[:fast]
          p [ask.call, Heddle.run { Heddle.spawn(&ask).value }, Heddle::NetHTTP.stats[:fast] - before >= 6]
        end
        p Heddle::NetHTTP.stats[:fallback]
      RUBY
      assert_equal ['["hello", "hello", true]'] * LIBRARIES.size + ["{}"], out.lines(chomp: true)
    end
  end
end

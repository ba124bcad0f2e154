# frozen_string_literal: true

require "test_helper"
require "digest"
require "json"
require "open-uri"
require "stringio"
require "tempfile"
require "support/aws_beside_others"
require "support/servers"
require "heddle/net_http"
require "heddle"
require "heddle/lab/load_server"

runs_on except: %i[portable newest_net_http]

# Libraries that use Net::HTTP, with real servers: they get what they ask for, and all of it by the fast path.
class NetHTTPLibrariesTest < Minitest::Test
  hard_deadline 180
  mode :thread

  SIZE = 5_000_000
  LARGE = 100_000_000

  def setup
    Heddle::NetHTTP.enable
    @before = Heddle::NetHTTP.stats
  end

  def teardown
    return if skipped? || !failures.empty?

    after = Heddle::NetHTTP.stats
    assert_operator after[:fast], :>, @before[:fast]
    assert_equal @before[:fallback], after[:fallback]
  end

  def test_open_uri
    assert_equal body(SIZE), URI("#{url}/b/#{SIZE}").open(&:read)
    assert_equal body(SIZE), URI("#{url}/c/#{SIZE}").open(&:read)
    assert_equal body(SIZE), URI("#{url}/z/#{SIZE}").open(&:read) # it asks for gzip itself
    arrived = []
    URI("#{url}/b/#{SIZE}").open(
      content_length_proc: ->(length) { arrived << length }, progress_proc: ->(length) { arrived << length }, &:read
    )
    assert_equal [SIZE, SIZE], [arrived.first, arrived.last]
    assert_raises(OpenURI::HTTPError) { URI("#{url}/nothing").open }
  end

  def test_faraday
    connection = faraday
    assert_equal body(SIZE), connection.get("/b/#{SIZE}").body
    assert_equal %({"bytes":#{SIZE},"right":true}\n), connection.put("/u", body(SIZE), "Content-Type" => "x/y").body
    with_file(SIZE) do |file|
      answer = connection.put("/u", file, "Content-Type" => "x/y", "Content-Length" => SIZE.to_s)
      assert_equal %({"bytes":#{SIZE},"right":true}\n), answer.body
    end
    pieces = []
    connection.get("/c/#{SIZE}") { |request| request.options.on_data = proc { |piece| pieces << piece } }
    assert_equal body(SIZE), pieces.join
    error = assert_raises(Faraday::TimeoutError) { connection.get("/5000") { |request| request.options.timeout = 0.1 } }
    assert_kind_of Net::ReadTimeout, error.cause
  end

  def test_faraday_in_tasks
    connection = faraday
    bodies = Heddle.run { Array.new(30) { Heddle.spawn { connection.get("/100").body } }.map(&:value) }
    assert_equal ["done"] * 30, bodies
  end

  def test_net_http_persistent
    require "net/http/persistent"
    http = Net::HTTP::Persistent.new(name: "heddle")
    connections = connections_of_server
    10.times { assert_equal "done", http.request(URI("#{url}/0")).body }
    request = Net::HTTP::Put.new("/u", "Content-Type" => "x/y")
    request.body = body(SIZE)
    assert_equal %({"bytes":#{SIZE},"right":true}\n), http.request(URI("#{url}/u"), request).body
    assert_equal 2, connections_of_server - connections, "its own, and that of the request"
    bodies = Heddle.run { Array.new(10) { Heddle.spawn { http.request(URI("#{url}/20")).body } }.map(&:value) }
    assert_equal ["done"] * 10, bodies
  ensure
    http&.shutdown
  end

  # Up and down, from a file and to a file, from a String and to a String.
  def test_aws_sdk_s3
    client = s3
    with_file(LARGE) do |file|
      digest = Digest::SHA256.file(file.path).hexdigest
      steps = Heddle::NetHTTP.stats[:fast]
      client.put_object(bucket: @s3.bucket, key: "large", body: file)
      assert_operator Heddle::NetHTTP.stats[:fast] - steps, :<, 50, "in pieces of 16 KiB it takes six thousand"
      Tempfile.create("down") do |down|
        client.get_object(bucket: @s3.bucket, key: "large", response_target: down.path)
        assert_equal [LARGE, digest], [File.size(down.path), Digest::SHA256.file(down.path).hexdigest]
      end
      assert_equal digest, Digest::SHA256.hexdigest(client.get_object(bucket: @s3.bucket, key: "large").body.read)
    end
    client.put_object(bucket: @s3.bucket, key: "small", body: "ä" * 1000)
    assert_equal ("ä" * 1000).b, client.get_object(bucket: @s3.bucket, key: "small").body.read.b
    assert_raises(Aws::S3::Errors::NoSuchKey) { client.get_object(bucket: @s3.bucket, key: "none") }
  end

  private

  def load_server
    @load_server ||= Servers.load
  end

  def connections_of_server = JSON.parse(Net::HTTP.get(URI("#{url}/stats"))).fetch("connections")

  def url = "http://127.0.0.1:#{load_server.port}"

  def body(size) = Heddle::Lab::LoadServer.body(size)

  def faraday
    require "faraday"
    require "faraday/net_http"
    Faraday.new(url) { |builder| builder.adapter :net_http }
  end

  def s3
    require "aws-sdk-s3"
    @s3 = Servers.s3
    Aws::S3::Client.new(endpoint: "http://127.0.0.1:#{@s3.port}", region: "us-east-1", force_path_style: true,
      retry_limit: 0, access_key_id: @s3.access_key, secret_access_key: @s3.secret_key,
      request_checksum_calculation: "when_required", response_checksum_validation: "when_required")
  end

  def with_file(size)
    Tempfile.create("body") do |file|
      file.binmode
      file.write(body(size))
      file.rewind
      yield file
    end
  end
end

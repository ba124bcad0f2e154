# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/loop_helpers"
require "support/shaping_proxy"

# s3rver answers at once: a proxy in front of it adds the delay.
class UnmodifiedAwsS3Test < UnmodifiedTestCase
  include LoopHelpers
  include ShapingProxies

  DELAY = 0.2

  def setup
    super
    require "aws-sdk-s3"
    @server = server(:s3)
    @proxy = shaping_proxy(@server, delay: DELAY)
    @expected = Array.new(COUNT) { |i| "the body of #{i}\n" * 1000 }
    direct = client(@server.port)
    @expected.each_with_index { |body, i| direct.put_object(bucket: @server.bucket, key: "key/#{i}", body: body) }
    @client = client(@proxy.port)
  end

  on_each_host "twenty objects from 200 ms away" do |host|
    assert_at_once(host, each: DELAY, under: 1.5, expected: @expected) { |i| get(i) }
  end

  def test_the_same_objects_in_a_row
    assert_in_a_row(each: DELAY, expected: @expected) { |i| get(i) }
  end

  on_each_host "twenty objects written and listed" do |host|
    keys = Array.new(COUNT) { |i| format("written-on-%s/%02d", host, i) }
    at_once(host, COUNT) { |i| @client.put_object(bucket: @server.bucket, key: keys[i], body: keys[i]) }
    listed = @client.list_objects_v2(bucket: @server.bucket, prefix: "written-on-#{host}/").contents.map(&:key)
    assert_equal keys, listed
  end

  # The seed's "1000 fibers pool". One after another they would take 200 s; how long they take at once is the server's.
  def test_a_thousand_objects_through_a_pool_of_a_thousand
    with_descriptors(4096, least: 1200) do
      pool = Heddle::FiberPool.new(1000)
      took, undelayed, same = timed { pool.map(0...1000) { |i| get(i % COUNT) == @expected[i % COUNT] } }
      assert_empty same.each_index.reject { |i| same[i] }
      assert_operator undelayed, :<, stretched(1000 * DELAY / 10)
      # Side by side: a connection that is free is reused, so how many there are follows from the time that it took.
      assert_operator @proxy.stats["most_open"], :>=, 1000 * DELAY / took
    end
  end

  private

  def get(i) = @client.get_object(bucket: @server.bucket, key: "key/#{i}").body.read

  def client(port)
    Aws::S3::Client.new(
      endpoint: "http://localhost:#{port}", region: "us-east-1", force_path_style: true, retry_limit: 0,
      access_key_id: @server.access_key, secret_access_key: @server.secret_key,
      request_checksum_calculation: "when_required", response_checksum_validation: "when_required"
    )
  end
end

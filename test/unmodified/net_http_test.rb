# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "net/http"

class UnmodifiedNetHTTPTest < UnmodifiedTestCase
  def setup
    super
    @address = URI("http://localhost:#{server(:load).port}") # by name, so that the look-up is included
  end

  # The first example of the NeverBlock posts.
  on_each_host "twenty requests of a second take a second" do |host|
    assert_at_once(host, each: 1.0, under: 2.0, expected: ["200"] * COUNT) { get(1000) }
  end

  def test_the_same_requests_in_a_row
    assert_in_a_row(each: 0.2, expected: ["200"] * COUNT) { get(200) }
  end

  on_each_host "one connection kept alive by each task" do |host|
    expected = Array.new(COUNT) { %w[200 200 200] }
    assert_at_once(host, each: 0.6, under: 1.8, expected: expected) do
      Net::HTTP.start(@address.host, @address.port) { |http| Array.new(3) { http.get("/200").code } }
    end
  end

  private

  def get(milliseconds) = Net::HTTP.get_response(@address + "/#{milliseconds}").code
end

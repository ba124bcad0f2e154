# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/servers"

# More requests at once than descriptors: requests without a descriptor get an error, the others are answered, and
# when descriptors are free again everything works as before.
class DescriptorLimitTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  def test_requests_beyond_the_limit_fail_and_later_ones_do_not
    port = Servers.load.port
    out = assert_child(<<~RUBY, rlimit_nofile: [80, 80])
      require "net/http"
      def get(path) = Net::HTTP.start("127.0.0.1", #{port}) { |http| http.get(path).body }
      def open_now = Dir.children("/proc/self/fd").size
      Heddle.run do
        Net::HTTP.get("127.0.0.1", "/0", #{port}) # what is loaded late needs descriptors, too
        before = open_now
        3.times do
          tasks = Array.new(200) do
            Heddle.spawn do
              get("/200")
            rescue SystemCallError, SocketError => error
              error.class.name
            end
          end
          outcomes = tasks.map(&:value).tally
          puts [outcomes.keys.sort, outcomes["done"] >= 40, outcomes.values.sum].inspect
          puts Heddle::FiberPool.new(20).map(1..20) { get("/0") }.tally.inspect
          GC.start
          puts open_now - before
        end
      end
    RUBY
    assert_equal ['[["Errno::EMFILE", "done"], true, 200]', {"done" => 20}.inspect, "0"] * 3, out.lines(chomp: true)
  end

  def test_a_pool_of_the_right_size_never_reaches_the_limit
    port = Servers.load.port
    out = assert_child(<<~RUBY, rlimit_nofile: [80, 80])
      require "net/http"
      bodies = Heddle::FiberPool.new(30)
        .map(1..300) { Net::HTTP.start("127.0.0.1", #{port}) { |http| http.get("/10").body } }
      puts bodies.tally.inspect
    RUBY
    assert_equal "#{{"done" => 300}.inspect}\n", out
  end
end

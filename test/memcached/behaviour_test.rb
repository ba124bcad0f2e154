# frozen_string_literal: true

require "test_helper"
require "shared/memcached_behaviour"

# In each way to wait, with each kind of connection to a server.
{thread: %i[tcp unix tls], fiber: %i[tcp tls]}.each do |wait, ways|
  ways.each do |way|
    test = Class.new(Minitest::Test) do
      include MemcachedBehaviour

      define_singleton_method(:wait_mode) { wait }
      define_singleton_method(:way) { way }
      mode wait
      hard_deadline 60
    end
    Object.const_set("Memcached#{wait.capitalize}#{way.upcase}Test", test)
  end
end

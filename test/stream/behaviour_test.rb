# frozen_string_literal: true

require "test_helper"
require "shared/stream_behaviour"

runs_on rubies: :ends

# In each way to wait, over TCP and over TLS.
%i[thread fiber async].each do |wait|
  [false, true].each do |tls|
    test = Class.new(Minitest::Test) do
      include StreamBehaviour

      define_singleton_method(:wait_mode) { wait }
      define_method(:tls?) { tls }
      mode((wait == :thread) ? :thread : :fiber)
      hard_deadline 120

      def setup
        async = self.class.wait_mode == :async
        if async && !IO.method_defined?(:timeout)
          skip "async #{Gem.loaded_specs["async"]&.version} waits with IO#timeout, which Ruby #{RUBY_VERSION} lacks"
        end
      end
    end
    Object.const_set("Stream#{wait.capitalize}#{"TLS" if tls}Test", test)
  end
end

# frozen_string_literal: true

require "heddle/lab"

# For test classes: the lab's proxies before the servers of Servers, stopped at the test's end.
#
#   include ShapingProxies
#
#   proxy = shaping_proxy(server(:memcached), delay: 0.2)   # host, port, stats
#   proxy.shape(stall_at: 3)                                # after a clean log-in, say
module ShapingProxies
  # @param server [Servers::Server] or anything with a host and a port
  # @param settings [Hash] as Heddle::Lab::ShapingProxy takes them
  def shaping_proxy(server, **settings)
    proxy = Heddle::Lab::ShapingProxy.start("#{server.host}:#{server.port}", **settings)
    (@shaping_proxies ||= []) << proxy
    proxy
  end

  def after_teardown
    super
    @shaping_proxies&.each(&:stop)
  end
end

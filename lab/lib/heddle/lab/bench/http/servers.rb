# frozen_string_literal: true

require "zlib"

module Heddle
  module Lab
    class Bench
      class HTTP < Bench
        # The load server, and the proxies in front of it: one for each site, and one for TLS.
        class Servers
          # Starts the servers that the sites and tests need, and ends them after the block.
          # @yieldparam servers [Servers]
          def self.open(affinity, sites, tests, size)
            return yield(new(nil, nil, nil, nil)) if sites.first.is_a?(Elsewhere)

            LoadServer.start(core: affinity.server) do |plain|
              tls = TLSServer.new(plain, core: affinity.server) if tests.any?(&:tls?)
              servers = new(plain, tls, affinity.server, size)
              yield servers
            ensure
              servers&.stop
              tls&.stop
            end
          end

          # @param plain [LoadServer]
          # @param tls [TLSServer, nil]
          # @param core [Integer, nil]
          # @param size [Integer] bytes of a body
          def initialize(plain, tls, core, size)
            @plain = plain
            @tls = tls
            @core = core
            @proxies = {}
            @size = size
            @crc = Zlib.crc32(LoadServer.body(size)) if size
          end

          # @param site [Sites::Site, Elsewhere]
          # @param test [Tests::Test]
          # @return [Hash{String => Object}] addresses for the client: "url" through the site's proxy, "direct" without
          #   it
          def address(site, test)
            return site.address if site.is_a?(Elsewhere)

            server = test.tls? ? @tls : @plain
            path = (test.params["what"] == "download") ? "#{test.params["path"]}#{@size}" : test.params["path"]
            {"url" => url(near(site, test, server), test, path), "direct" => url(server, test, path), "crc" => @crc,
             "ca_file" => (@tls.ca_file if test.tls?)}.compact
          end

          # Ends the proxies.
          def stop = @proxies.each_value(&:stop)

          private

          # The process to which the client connects: the server, or the proxy that simulates the distance.
          def near(site, test, server)
            return server unless site.rate

            @proxies[[site.name, test.tls?, test.upload?]] ||= ShapingProxy.start("#{server.host}:#{server.port}",
              core: @core, delay: site.delay, rate: site.rate, direction: test.upload? ? "requests" : "replies")
          end

          def url(server, test, path) = "#{test.tls? ? "https" : "http"}://#{server.host}:#{server.port}#{path}"
        end
      end
    end
  end
end

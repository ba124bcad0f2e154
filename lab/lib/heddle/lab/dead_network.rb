# frozen_string_literal: true

require "json"
require "rbconfig"
require "tempfile"

module Heddle
  module Lab
    # Runs programs in a network of their own (Linux namespaces), in which no host answers: a packet to 192.0.2.0/24 or
    # 2001:db8::/64 (the networks that are reserved for documentation) gets neither answer nor error. Loopback works,
    # and a {DNSServer} that runs beside the program answers look-ups of names.
    #
    #   network = DeadNetwork.new(zone: {"two.test" => {"a" => %w[192.0.2.1 192.0.2.2]}})
    #   system(*network.launcher, "ruby", "-e", "…")
    #   network.questions # => ["a two.test", "aaaa two.test"]
    class DeadNetwork
      PROGRAM = File.expand_path("dead_network_main.rb", __dir__)

      # Addresses at which programs in the network may listen, beside loopback.
      OWN_ADDRESSES = {ipv4: "192.0.2.254", ipv6: "2001:db8::fe"}.freeze

      class << self
        # The reason why this machine cannot make such a network, or nil.
        def unavailable
          return @unavailable if defined?(@unavailable)

          @unavailable = find_fault
        end

        # The program that gives its command namespaces of its own.
        def unshare
          command = ["unshare", "--net", "--mount"]
          command << "--map-root-user" unless Process.uid.zero?
          # In a chroot the root is not a mount point; mounts are already private there if those outside of it are.
          runs?(command) ? command : command + ["--propagation", "unchanged"]
        end

        private

        def find_fault
          return "there is no /dev/net/tun" unless File.exist?("/dev/net/tun")
          return "this process may not make namespaces" unless runs?(unshare)

          "the network cannot be set up here" unless runs?([*new.launcher, "true"], bare: true)
        end

        def runs?(command, bare: false)
          system(*command, *("true" unless bare), in: File::NULL, out: File::NULL, err: File::NULL) == true
        end
      end

      # @param zone [Hash] see {DNSServer}
      # @param hosts [Hash{String => Array<String>}] further lines of /etc/hosts: an address and its names
      # @param syn_retries [Integer] how often the kernel asks again before a connect fails with ETIMEDOUT: 1 is some 3
      #   s
      # @param nsswitch [String] where names are looked up
      def initialize(zone: {}, hosts: {}, syn_retries: 1, nsswitch: "files dns")
        @log = Tempfile.new("questions")
        @settings = {zone: zone, hosts: hosts, syn_retries: syn_retries, nsswitch: nsswitch, log: @log.path}
      end

      # The prefix of a command that runs it in the network.
      def launcher
        [*self.class.unshare, RbConfig.ruby, "--disable=gems", PROGRAM, JSON.generate(@settings)]
      end

      # The questions that the DNS server got, in order: kind and name.
      def questions
        File.readlines(@log.path, chomp: true)
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    # Chooses the cores to which util-linux's taskset pins client and server. On a machine with one core, or without
    # taskset, no process is pinned.
    class Affinity
      # @return [Integer, nil] core of the measured processes
      attr_reader :client
      # @return [Integer, nil] core of the load server
      attr_reader :server

      # @param cores [Array<Integer>] the cores this process may use
      # @param taskset [Boolean] whether taskset is there
      def initialize(cores: Affinity.allowed, taskset: Affinity.taskset?)
        return unless taskset && cores.size > 1

        @client, @server = cores
      end

      # @return [Boolean]
      def pinned? = !@client.nil?

      # @param core [Integer, nil]
      # @return [Array<String>] prefix of a command that makes it run on the core
      def self.prefix(core) = core ? ["taskset", "-c", core.to_s] : []

      # @return [Array<Integer>] the cores that the kernel lets this process use
      def self.allowed
        list = File.read("/proc/self/status")[/^Cpus_allowed_list:\s*(\S+)/, 1]
        list.split(",").flat_map { |range| Range.new(*range.split("-").values_at(0, -1).map(&:to_i)).to_a }
      rescue SystemCallError
        []
      end

      # @return [Boolean]
      def self.taskset? = ENV.fetch("PATH", "").split(":").any? { |path| File.executable?(File.join(path, "taskset")) }
    end
  end
end

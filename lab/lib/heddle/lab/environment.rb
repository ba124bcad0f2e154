# frozen_string_literal: true

require "etc"
require "rbconfig"

module Heddle
  module Lab
    # The environment on which a result depends, beside the code.
    module Environment
      module_function

      # @param affinity [Affinity]
      # @return [Hash{String => Object}]
      def describe(affinity)
        {
          "kernel" => Etc.uname.values_at(:sysname, :release, :machine).join(" "),
          "cpu" => cpu_model,
          "cores" => Etc.nprocessors,
          "governor" => read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
          "pinned" => affinity.pinned? ? "client to core #{affinity.client}, server to core #{affinity.server}" : "no",
          "io_uring_disabled" => read("/proc/sys/kernel/io_uring_disabled"),
          "descriptors" => Process.getrlimit(:NOFILE).last,
          "git" => Checkout.describe
        }.compact
      end

      # @param environment [Hash{String => Object}] as of {describe}, or of a record's header
      # @return [Array<String>] why a machine in this state is unfit to measure on
      def doubts(environment)
        cores, load, governor, hard =
          environment.values_at("cores", "load_before", "governor", "descriptors")
        [
          ("only one core: client and server share it, and figures will vary" if cores.to_i < 2),
          ("no process is pinned to a core of its own" if environment["pinned"] == "no"),
          ("the machine is busy: load average #{load}" if load.to_f > 0.5),
          ("the CPU governor is #{governor}, not performance" if governor && governor != "performance"),
          ("at most #{hard} descriptors (ulimit -Hn): the scheduler bench needs 18100" if hard && hard < 18_100)
        ].compact
      end

      # @return [String, nil] load average over 1, 5 and 15 minutes
      def load_average = read("/proc/loadavg")&.split&.first(3)&.join(" ")

      # @return [String, nil]
      def cpu_model = read("/proc/cpuinfo")&.slice(/^model name\s*:\s*(.+)/, 1)

      # @param path [String]
      # @return [String, nil] the content of a file of the kernel
      def read(path)
        File.read(path).strip
      rescue SystemCallError
        nil
      end
    end
  end
end

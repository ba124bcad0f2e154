# frozen_string_literal: true

require "etc"
require "open3"
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
          "git" => git_revision
        }.compact
      end

      # @return [String, nil] load average over 1, 5 and 15 minutes
      def load_average = read("/proc/loadavg")&.split&.first(3)&.join(" ")

      # @return [String, nil] of the checkout from which the lab runs, with "+" if it has changes
      def git_revision
        output, status = Open3.capture2("git", "-C", __dir__, "describe", "--always", "--dirty=+", err: File::NULL)
        output.strip if status.success?
      rescue Errno::ENOENT
        nil
      end

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

# frozen_string_literal: true

require "open3"
require "tempfile"

module Heddle
  module Lab
    class Workload
      # Counts the system calls of clients, most of which do not count their own. strace counts them in a separate
      # program, not in the measured one. Two runs of different length cancel the calls of its start.
      module SystemCalls
        NAMES = %w[read write readv writev sendto recvfrom sendmsg recvmsg poll ppoll select pselect6 epoll_wait
          epoll_pwait epoll_pwait2 epoll_ctl].freeze
        RUNS = [100, 350].freeze
        private_constant :NAMES, :RUNS

        class << self
          # @yieldparam count [Integer] of repetitions
          # @yieldreturn [Array<String>] the command that does that many
          # @return [Float, nil] calls of each; nil where strace is not installed, or may not trace
          def each_time
            few, many = RUNS.map { |count| of(yield(count)) }
            (many - few).fdiv(RUNS.last - RUNS.first) if few && many
          end

          # @return [Array<String>] a command that runs a program with the libraries of this one
          def ruby(program, *arguments)
            [RbConfig.ruby, "--disable=gems", *$LOAD_PATH.flat_map { |path| ["-I", path] }, "-rrubygems",
              "-e", program, *arguments]
          end

          private

          def of(command)
            Tempfile.create("heddle-strace") do |summary|
              _, status = Open3.capture2e("strace", "-f", "--seccomp-bpf", "-c", "-qq", "-e",
                "trace=#{NAMES.join(",")}", "-o", summary.path, *command, stdin_data: "\n\n")
              status.success? ? total(summary.read) : nil
            end
          rescue Errno::ENOENT
            nil
          end

          # Columns: % time, seconds, µs per call, calls, errors if any, name.
          def total(summary)
            summary.scan(/^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$/).sum do |calls, name|
              (name == "total") ? 0 : calls.to_i
            end
          end
        end
      end
    end
  end
end

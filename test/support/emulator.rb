# frozen_string_literal: true

require "rbconfig"

# What QEMU's emulation of a process (script/with-ruby arm64) does otherwise than a Linux kernel, and the tests that
# fail there for that reason alone: there they skip, and say so. A program of plain Ruby in test/support/emulator shows
# each difference: it prints "same" on a kernel and "different" on the emulator. The driver runs the programs before the
# tests, so that a difference which is gone fails.
module Emulator
  # @!attribute tests [Hash{String => Regexp}] the names of tests by their file's path
  Difference = Struct.new(:name, :reason, :tests, keyword_init: true) do
    def program = File.expand_path("emulator/#{name}.rb", __dir__)

    def covers?(file, test) = tests[file]&.match?(test)

    def here? = IO.popen([RbConfig.ruby, "--disable=gems", program], &:read) == "different\n"
  end

  DIFFERENCES = [
    Difference.new(name: "seccomp", reason: "a process cannot filter its system calls", tests: {
      "test/loop/backend_failure_test.rb" => /_after_(a_sandbox|no_memory|nonsense)\z/
    }),
    Difference.new(name: "ptrace", reason: "strace cannot trace a process", tests: {
      "test/loop/timerfd_test.rb" => /\Atest_the_timer_is_set_once_for_many_waits\z/,
      "test/stream/system_calls_test.rb" => /\Atest_strace_counts_the_same\z/
    }),
    Difference.new(name: "address_space", reason: "the limit of the address space, RLIMIT_AS, has no effect", tests: {
      "test/stream/hazards_test.rb" => /\Atest_no_memory_in_the_middle_of_a_message\z/
    })
  ].freeze

  class << self
    # @return [String, nil] "qemu"; nil where a kernel runs the tests
    def name = ENV["HEDDLE_TEST_EMULATOR"]

    # @param file [String] path in the repository
    # @return [Difference, nil] for which the test cannot pass here
    def difference(file, test)
      DIFFERENCES.find { |difference| difference.covers?(file, test) } if name
    end

    # Says what is left out.
    #
    # @return [Array<String>] differences that are gone
    def tell(out)
      return [] unless name

      gone = DIFFERENCES.reject(&:here?)
      (DIFFERENCES - gone).each do |difference|
        tests = difference.tests.map { |file, pattern| "#{file} #{pattern.inspect}" }
        out.syswrite("#{name}: #{difference.reason}; left out: #{tests.join(", ")}\n")
      end
      gone.each { |difference| out.syswrite("#{name}: no longer so: #{difference.reason} (#{difference.program})\n") }
      gone.map(&:name)
    end
  end

  # For Minitest::Test.
  module Hook
    def before_setup
      difference = Emulator.difference(File.expand_path($PROGRAM_NAME).delete_prefix("#{TestRecord::ROOT}/"), name)
      skip "#{Emulator.name}: #{difference.reason}" if difference
      super
    end
  end
end

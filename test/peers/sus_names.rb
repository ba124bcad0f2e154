# frozen_string_literal: true

# Runs a suite of sus, in this folder, test by test, and tells of each.
module PeerNames
  def self.run(_files)
    $stdout.sync = true
    require "sus"
    require "sus/config"
    require "sus/output"
    config = Sus::Config.load
    config.before_tests(Sus::Assertions.new(output: Sus::Output::Null.new))
    config.registry.each do |test|
      puts "\npeer-test began #{test.identity}"
      assertions = Sus::Assertions.new(output: Sus::Output::Null.new)
      test.call(assertions)
      state = if !assertions.passed? then "failed"
      elsif assertions.skipped.any? then "skipped"
      else "passed"
      end
      puts "\npeer-test #{state} #{test.identity}"
      next unless state == "failed"

      assertions.each_failure { |failure| warn("#{test.identity}: #{failure.message}") }
    end
    exit!(0)
  end
end

# frozen_string_literal: true

# Runs files of Minitest, and tells of each test.
module PeerNames
  def self.run(files)
    $stdout.sync = true
    require "minitest"
    Minitest::Test.prepend(Names)
    files.each { |file| require File.expand_path(file) }
  end

  # Prepended to Minitest::Test.
  module Names
    def run
      test = "#{self.class}##{name}"
      $stdout.puts "\npeer-test began #{test}"
      super.tap do |result|
        state = if result.passed? then "passed"
        elsif result.skipped? then "skipped"
        else "failed"
        end
        $stdout.puts "\npeer-test #{state} #{test}"
        warn("#{test}: #{result.failures.map(&:message).join("; ")}") if state == "failed"
      end
    end
  end
end

# frozen_string_literal: true

# Runs files of Minitest, and tells of each test.
module PeerNames
  OUT = $stdout.dup # a test may have put another in its place, while another test ends in another thread
  OUT.sync = true

  def self.run(files)
    ENV.delete("BUNDLE_LOCKFILE") # bundles that tests make would write into this one's
    require "minitest"
    Minitest::Test.prepend(Names)
    files.each { |file| require File.expand_path(file) }
  end

  # Prepended to Minitest::Test.
  module Names
    def run
      test = "#{self.class}##{name}"
      OUT.write "\npeer-test began #{test}\n"
      super.tap do |result|
        state = if result.passed? then "passed"
        elsif result.skipped? then "skipped"
        else "failed"
        end
        OUT.write "\npeer-test #{state} #{test}\n"
        warn("#{test}: #{result.failures.map(&:message).join("; ")}") if state == "failed"
      end
    end
  end
end

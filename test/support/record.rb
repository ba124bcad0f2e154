# frozen_string_literal: true

require "json"

# What ran where. Every process that runs tests appends JSON lines to the file that HEDDLE_TEST_RECORD names; bin/test
# makes its table from them. A line is one test class in one process, or one test file with how its driver saw it end.
module TestRecord
  ROOT = File.expand_path("../..", __dir__)

  module_function

  def path
    name = ENV["HEDDLE_TEST_RECORD"]
    name unless name.nil? || name.empty?
  end

  # The backend that is forced, or "default".
  def backend
    name = ENV["HEDDLE_BACKEND"]
    (name.nil? || name.empty?) ? "default" : name
  end

  # The backend, and the build, the libraries or servers, and the compiler where they are not the defaults: "poll
  # portable".
  def column
    folder = ENV["HEDDLE_NATIVE_DIR"]
    build = folder[%r{/native/([^/]+)/}, 1] || "other build" if folder && !folder.empty?
    yjit = "YJIT" if defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?
    [backend, build, ENV["HEDDLE_TEST_LIBRARIES"], yjit].compact.join(" ")
  end

  def append(type, fields)
    append_lines(["#{JSON.generate({type: type, ruby: RUBY_VERSION, backend: column, **fields})}\n"])
  end

  # One write in append mode: lines of several processes do not mix.
  def append_lines(lines)
    File.open(path, "a") { |file| file.syswrite(lines.join) } if path && lines.any?
  end

  # Collects results by class and appends them when the run ends.
  class Reporter < Minitest::AbstractReporter
    def initialize
      super
      @pid = Process.pid
      @classes = {}
    end

    def record(result)
      klass = result.klass
      row = @classes[klass] ||= {
        class: klass, file: relative(result.source_location.first), mode: mode(klass),
        runs: 0, assertions: 0, failures: 0, errors: 0, seconds: 0.0, skips: []
      }
      row[:runs] += 1
      row[:assertions] += result.assertions
      row[:seconds] += result.time
      if result.skipped?
        row[:skips] << {test: result.name, reason: result.failure.message}
      elsif result.error?
        row[:errors] += 1
      elsif !result.passed?
        row[:failures] += 1
      end
    end

    def report
      return unless Process.pid == @pid # a test's own child must not report in its parent's name

      @classes.each_value { |row| TestRecord.append("class", {**row, seconds: row[:seconds].round(3)}) }
    end

    private

    def relative(file)
      File.expand_path(file).delete_prefix("#{ROOT}/")
    end

    def mode(name)
      klass = Object.const_get(name)
      klass.respond_to?(:mode) ? klass.mode : "-"
    rescue NameError # an anonymous class
      "-"
    end
  end
end

module Minitest
  def self.plugin_heddle_record_init(_options)
    reporter << TestRecord::Reporter.new if TestRecord.path
  end

  extensions << "heddle_record"
end

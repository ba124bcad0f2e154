# frozen_string_literal: true

require "test_helper"
require "open3"
require "rbconfig"
require "stringio"
require "tempfile"
require "support/placement"
require "support/steps"
require "support/summary"
require "support/versions"

# What bin/test says: of its steps, of limits, of what cannot run on this machine, and of the versions of gems.
class TestCommandTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  def test_a_step_has_its_number_and_tells_that_it_is_at_work
    out = StringIO.new
    steps = TestSteps.new(%w[first second], quiet: 0.05, out: out)
    steps.announce("first") { assert_predicate steps.run("first", 20, "echo", "begun"), :success? }
    steps.announce("second") do
      reader, writer = IO.pipe
      wait = "read line < /proc/#{Process.pid}/fd/#{reader.fileno}"
      waiting = Thread.new { steps.run("second", 60, "sh", "-c", wait) }
      wait_until(what: "a word of the step") { out.string.include?("second: at work for 0 s") }
      writer.puts("end")
      assert_predicate waiting.value, :success?
    end
    assert_match(/^== Step 1 of 2: first \(0 s so far/, out.string)
    assert_match(/^begun$/, out.string)
    assert_match(/^== Step 2 of 2: second \(/, out.string)
  end

  def test_a_limit_says_how_to_raise_it
    out = StringIO.new
    status = TestSteps.new([], patience: 0.01, out: out).run("style", 10, "sleep", "60")
    assert_equal "style: ended by its limit of 1 s; HEDDLE_TEST_PATIENCE=3 bin/test triples all limits\n", out.string
    refute status.success?
  end

  # As many Rubies, backends and builds as a whole run has.
  def test_the_tables_fit_a_terminal
    Tempfile.create("record") do |record|
      rows = Array.new(26) do |at|
        {type: "class", file: "test/unmodified/x_test.rb", class: "XTest", mode: "blocking", ruby: "3.#{at}.12",
         backend: "default net-http-0.10.0 net-protocol-0.4.0", runs: 12_345, assertions: 1, failures: at, errors: 0,
         skips: []}
      end
      record.write(rows.map { |row| "#{JSON.generate(row)}\n" }.join)
      record.flush
      out, = capture_io { TestSummary.new(record.path).print(seconds: 61) }
      tables = out[/What ran where.*(?=\n1 min)/m]
      assert_operator tables.lines.map { |line| line.chomp.size }.max, :<=, 100, tables
      assert_match(/^  unmodified, blocking +320970 +325 +abcdefghijklmnopqrstuvwxyz$/, tables)
      assert_match(/^320970 runs, 26 assertions, 325 failures, 0 errors, 0 skips$/, out)
    end
  end

  def test_a_missing_ruby_is_a_line_and_not_a_failure
    out, = Open3.capture2e(RbConfig.ruby, "test/support/matrix.rb", "--ruby", "9.9", "test/documents/columns_test.rb",
      chdir: ROOT)
    assert_match(/^Not run on this machine:\n  Ruby 9\.9: with-ruby: Ruby 9\.9 cannot be had here: .*install it/, out)
    assert_match(/^0 runs, 0 assertions, 0 failures, 0 errors, 1 skips$/, out)
  end

  def test_a_file_says_where_it_runs
    place = placement("runs_on rubies: :ends, backends: :one, also: %i[yjit poll], except: %i[debug], short: false\n")
    assert_equal [:ends, true, false], [place.rubies, place.one_backend?, place.short?]
    assert_equal [true, true, false], [place.also?(:yjit), place.also?(:poll), place.also?(:newer_servers)]
    assert_equal [true, false], [place.except?(:debug), place.except?(:portable)]
    silent = placement("require \"test_helper\"\n")
    assert_equal [:all, false, true], [silent.rubies, silent.one_backend?, silent.short?]
    ["rubies: :end", "also: %i[yjut]", "short: 1", "when: :noon"].each do |wrong|
      assert_raises(ArgumentError, wrong) { placement("runs_on #{wrong}\n") }
    end
  end

  def test_other_versions_are_named
    assert_equal ["json 2.7 -> 2.8", "logger (none) -> 1.6", "rack 3.0 -> (none)"],
      GemVersions.changes({"json" => "2.7", "rack" => "3.0", "rake" => "13"},
        {"json" => "2.8", "logger" => "1.6", "rake" => "13"})
  end

  def test_the_bundle_has_the_versions_that_are_written_down
    skip "the newest versions are asked for" if ENV["HEDDLE_NEWEST"]
    skip "no Bundler here" unless (lock = ENV["BUNDLE_GEMFILE"]&.then { |gemfile| "#{gemfile}.lock" })
    versions = GemVersions.of(RUBY_VERSION[/\A\d+\.\d+/])
    skip "no versions are written down for Ruby #{RUBY_VERSION}" if versions.empty?

    assert_empty GemVersions.changes(versions, GemVersions.locked(lock))
  end

  private

  def placement(text)
    Tempfile.create("placed") do |file|
      file.write(text)
      file.flush
      Placement.of(file.path)
    end
  end
end

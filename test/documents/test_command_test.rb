# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "rbconfig"
require "stringio"
require "tempfile"
require "tmpdir"
require "support/placement"
require "support/slowness"
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
    status = TestSteps.new([], out: out).run("style", 0.1, "sleep", "60")
    factor = Slowness::FACTOR
    assert_equal "style: ended by its limit of #{(0.1 * factor).ceil} s; HEDDLE_TEST_SLOWNESS=#{(factor * 3).round} " \
                 "bin/test triples all limits\n", out.string
    refute status.success?
  end

  def test_the_slowness_of_a_machine_is_a_number_from_1_on
    assert_in_delta 1, Slowness.read("1"), 0
    assert_in_delta 8.5, Slowness.read("8.5"), 0
    ["", "0.5", "-3", "slow", "8x", "NaN", "Infinity"].each do |text|
      error = assert_raises(ArgumentError, text) { Slowness.read(text) }
      assert_match(/\AHEDDLE_TEST_SLOWNESS is #{Regexp.escape(text.inspect)}: /, error.message)
    end
  end

  def test_a_slow_machine_gets_longer_limits_and_no_earlier_moments
    late = "assert_within(0.01) { sleep(0.1) }"
    assert_equal [true, false], [1000, 1].map { |factor| in_a_test(late, factor).last.success? }
    refute in_a_test("assert_within(1, at_least: 0.02) { sleep(0.001) }", 40).last.success?
  end

  # It may hang where no handler of a signal runs.
  def test_a_test_that_hangs_is_ended
    hanging = "Process.setrlimit(:CORE, 0); trap(:USR2, :IGNORE); sleep"
    out, status = in_a_test(hanging, 1, limit: 0.1)
    assert_match(/^watchdog: .*test_it did not end in time$/, out)
    assert status.signaled?, status.inspect
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

  def test_files_that_no_time_is_left_for_are_named
    Dir.mktmpdir do |folder|
      out, status = Open3.capture2e({"HEDDLE_TEST_RECORD" => "#{folder}/record", "HEDDLE_TEST_UNTIL" => "1",
        "HEDDLE_TEST_SLOTS" => "#{folder}/slots", "HEDDLE_TEST_AGAIN" => "#{folder}/again", "HEDDLE_BACKEND" => nil},
        RbConfig.ruby, "test/support/driver.rb", "test/documents/columns_test.rb", "test/loop", chdir: ROOT)
      assert status.success?, out
      told, = capture_io { TestSummary.new("#{folder}/record").print(seconds: 61) }
      files = 1 + Dir["#{ROOT}/test/loop/**/*_test.rb"].size
      assert_match(/^Not run, for the time.*:\n  #{RUBY_VERSION} default: #{files} files \(documents, loop\)$/, told)
      assert_match(/^0 runs, 0 assertions, 0 failures, 0 errors, #{files} skips$/, told)
    end
  end

  def test_a_ruby_that_is_kept_in_the_cache_is_found_by_its_name
    Dir.mktmpdir do |cache|
      FileUtils.mkdir_p(folder = "#{cache}/heddle/rubies/ruby-kept/bin")
      File.write("#{folder}/ruby", "#!/bin/sh\nexec #{RbConfig.ruby} \"$@\"\n", perm: 0o755)
      out, status = Open3.capture2e({"XDG_CACHE_HOME" => cache}, "script/with-ruby", "kept", "sh", "-c",
        "command -v ruby && ruby -e 'puts RUBY_VERSION'", chdir: ROOT)
      assert_equal ["#{folder}/ruby\n#{RUBY_VERSION}\n", true], [out, status.success?]
    end
  end

  # As `rake compatibility` does, whose own bundle is not the one that it installs.
  def test_a_ruby_below_bundle_exec_takes_the_bundle_of_this_tree
    Dir.mktmpdir do |folder|
      File.write("#{folder}/Gemfile", %(gem "heddle-none"\n))
      bundles = {"RUBYOPT" => "-rbundler/setup", "RUBYLIB" => folder, "BUNDLE_GEMFILE" => "#{folder}/Gemfile",
                 "BUNDLER_ORIG_PATH" => folder}
      version = RUBY_VERSION[/\A\d+\.\d+/]
      out, status = Open3.capture2e(bundles, "script/with-ruby", version, "ruby", "-e",
        "puts RUBY_VERSION, ENV.values_at(*%w[RUBYOPT RUBYLIB BUNDLER_ORIG_PATH]).inspect, ENV['BUNDLE_GEMFILE']",
        chdir: ROOT)
      gemfile = "#{ROOT}/tmp/#{ENV["HEDDLE_NEWEST"] ? "newest" : "bundle"}/#{version}/Gemfile"
      assert_equal ["#{RUBY_VERSION}\n[nil, nil, nil]\n#{gemfile}\n", true], [out, status.success?]
    end
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

  # The output and the status of a process on a machine of that slowness, which runs the code as a test.
  def in_a_test(code, slowness, limit: 60)
    program = <<~RUBY
      require "test_helper"
      require "heddle/core/clock"
      Class.new(Minitest::Test) { hard_deadline(#{limit}) && define_method(:test_it) { #{code} } }
    RUBY
    environment = {"HEDDLE_TEST_SLOWNESS" => slowness.to_s, "HEDDLE_TEST_RECORD" => nil} # it is none of the run's tests
    Open3.capture2e(environment, RbConfig.ruby, "-Ilib", "-Itest", "-e", program, chdir: ROOT)
  end

  def placement(text)
    Tempfile.create("placed") do |file|
      file.write(text)
      file.flush
      Placement.of(file.path)
    end
  end
end

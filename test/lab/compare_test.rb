# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tmpdir"
require "heddle/lab"
require "support/lab_records"

# `heddle compare`: two runs of a bench, and what differs in them beyond the noise.
class LabCompareTest < Minitest::Test
  def setup
    @directory = Dir.mktmpdir
  end

  def teardown = FileUtils.remove_entry(@directory)

  # @return [String] path of a run whose CPU time is +factors+ times the usual one, by model
  def run_of(name, factors = {}, ruby: "4.0.5")
    record = LabRecords.http("4.0.5")
    record.header["environment"]["ruby"] = "ruby #{ruby}"
    record.rounds.each do |round|
      next unless round.measures && !round.twin && (factor = factors[round.model])

      %w[cpu user system].each { |measure| round.measures[measure] *= factor if round.measures[measure] }
    end
    File.join(@directory, "#{name}.json").tap { |path| File.write(path, record.to_json) }
  end

  def compare(*argv)
    out, err = StringIO.new, StringIO.new
    [Heddle::Lab::CLI.run(["compare", *argv], out: out, err: err), out.string, err.string]
  end

  def test_a_run_and_itself
    status, out, = compare(run_of("a"), run_of("b"), "--fail-if", "CPU > 1.0", "--fail-if", "CPU < 1")
    assert_equal 0, status
    assert_match(/^Beyond the noise: 0 of \d{2,} figures$/, out)
    assert_includes out, "made on the same machine, with the same versions"
  end

  def test_what_became_slower_is_named_and_fails
    before, after = run_of("before"), run_of("after", {"heddle" => 1.5, "curb" => 0.5}, ruby: "3.4.11")
    status, out, err = compare(before, after, "--fail-if", "cpu seconds > 1.2")
    assert_equal 1, status
    rows = out.lines.grep(/CPU seconds per GB/).map { |line| line.split(/ {2,}/).values_at(0, 5) }
    assert_equal %w[curb heddle], rows.map(&:first).uniq.sort
    assert_equal %w[0.50 1.50], rows.map { |_, ratio| ratio[/\A\S+/] }.uniq.sort
    assert_match(/^heddle: cpu seconds > 1\.2: heddle, .*: CPU seconds per GB .*, then .*: 1\.50 \[/, err)
    refute_includes err, "curb"
    assert_match(/^ruby: ruby 4\.0\.5.*; then ruby 3\.4\.11/, out)
    assert_equal [0, ""], compare(before, after, "--models", "curb", "--fail-if", "cpu > 1.2").values_at(0, 2)
    assert_equal 1, compare(before, after, "--models", "curb", "--fail-if", "cpu < 0.9").first
    assert_match(/^\| curb \| .* \| CPU seconds per GB \| .* \| 0\.50 \[/, compare(before, after, "-o", "md")[1])
  end

  def test_what_is_within_the_floor_is_noise
    assert_match(/noise: 0 of/, compare(run_of("a"), run_of("b", {"heddle" => 1.001}))[1])
  end

  # Without figures nothing is slower.
  def test_what_is_lost_fails
    before = run_of("before")
    {
      /heddle, .*: killed by SIGSEGV/ => lambda do |record|
        record.rounds.each { |round| round.measures, round.error = nil, "killed by SIGSEGV" if round.model == "heddle" }
      end,
      /heddle, .*: cannot load such file/ => lambda do |record|
        record.rounds.reject! { |round| round.model == "heddle" }
        record.header["models"].reject! { |model| model["name"] == "heddle" }
        record.header["missing"] << {"name" => "heddle", "reason" => "cannot load such file"}
      end,
      /heddle, .*: 999 errors, the first: wrong/ => lambda do |record|
        record.rounds.each do |round|
          round.measures.merge!("errors" => 999, "first_error" => "wrong") if round.model == "heddle"
        end
      end
    }.each do |said, change|
      record = Heddle::Lab::Record.read(before)
      change.call(record)
      File.write(after = File.join(@directory, "after.json"), record.to_json)
      status, out, err = compare(before, after, "--fail-if", "CPU > 1.5")
      assert_equal 1, status
      assert_match said, err
      assert_match(/^No longer measured without a failure$/, out)
      assert_equal 0, compare(before, after).first
      assert_equal 0, compare(before, after, "--fail-if", "CPU > 1.5", "--models", "curb").first
    end
  end

  def test_other_options_are_named
    record = Heddle::Lab::Record.read(before = run_of("before"))
    record.header["options"]["size"] = 50
    record.header["interrupted"] = true
    record.header["rounds_asked"] = 77
    File.write(after = File.join(@directory, "after.json"), record.to_json)
    out = compare(before, after)[1]
    assert_match(/^size: \d+; then 50$/, out)
    assert_match(/^interrupted: false; then true$/, out)
    assert_match(/^rounds: \d+; then 77$/, out)
  end

  def test_wrong_command_lines
    one = run_of("one")
    other = File.expand_path("../../bench/results/memcached-ruby4.0.5.json", __dir__)
    {
      [one] => /compare takes two/, [one, other] => /one\.json is a run of bench http, .*json of memcached/,
      [one, one, "--fail-if", "CPU"] => /--fail-if takes METRIC > RATIO/,
      [one, one, "--fail-if", "tea > 1"] => /there is no figure "tea"; there are CPU seconds per GB, /,
      [one, one, "--models", "tea"] => /both runs measured .*; not tea/
    }.each do |argv, message|
      status, _, err = compare(*argv)
      assert_equal 64, status
      assert_match message, err
    end
    assert_equal 69, compare(one, File.join(@directory, "absent.json")).first
  end

  def test_the_ratio_of_two_medians
    ratio = Heddle::Lab::Statistics.ratio_of_medians([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert_equal [2.0, 2 / 3.0, 6.0], [ratio.median, ratio.low, ratio.high]
    assert_nil Heddle::Lab::Statistics.ratio_of_medians([], [1])
    assert_nil Heddle::Lab::Statistics.ratio_of_medians([1], [0])
  end
end

# frozen_string_literal: true

require "test_helper"
require "json"
require "pty"
require "stringio"
require "tmpdir"
require "heddle/lab"
require "lab/trial_bench"

# Ctrl-C ends a run, and loses no round: the report tells what was measured, and --resume measures the rest.
class InterruptedBenchTest < Minitest::Test
  EXE = File.expand_path("../../exe/heddle", __dir__)
  ASKED = %w[bench delay --requests 10 --delays 0,5 --models threads,threads:5 --seed 4 --name trial --rounds].freeze

  # Raises Interrupt as its cell begins, as a terminal's Ctrl-C may.
  class Interrupting
    def initialize(at) = @at = at

    def begin(_total) = nil

    def step(_cell)
      raise Interrupt if (@at -= 1).zero?
    end

    def round_ended(_record) = nil

    def clear = nil
  end

  def cli(*argv)
    out, err = StringIO.new, StringIO.new
    [Heddle::Lab::CLI.run(argv, out: out, err: err), out.string, err.string]
  end

  def cells(record) = record.rounds.map { |round| [round.round, round.case, round.model, round.twin] }

  def test_an_interrupted_run_goes_on_with_the_cells_that_are_missing
    _, whole = TrialBench.run(%w[good wrong])
    [2, 6, whole.record.rounds.size].each do |moment|
      _, summary = TrialBench.run(%w[good wrong], progress: Interrupting.new(moment))
      assert summary.record.interrupted?
      assert_equal moment - 1, summary.record.rounds.size
      read = Heddle::Lab::Record.parse(summary.record.to_json)
      _, summary = TrialBench.run(%w[good wrong], resumed: read)
      refute summary.record.interrupted?
      assert_equal cells(whole.record), cells(summary.record)
    end
  end

  def test_before_the_first_cell_there_is_nothing_to_keep
    assert_raises(Interrupt) { TrialBench.run(%w[good], progress: Interrupting.new(1)) }
  end

  def test_a_model_that_was_late_is_not_measured_again
    _, summary = TrialBench.run(%w[good hang], deadline: 1.5, twins: false, progress: Interrupting.new(4))
    late = summary.record.rounds.select(&:late).map(&:case)
    read = Heddle::Lab::Record.parse(summary.record.to_json)
    _, summary = TrialBench.run(%w[good hang], deadline: 1.5, twins: false, resumed: read)
    assert_equal %w[x1 x2], summary.record.rounds.filter_map { |round| round.case if round.model == "hang" }.sort
    refute_empty late
  end

  def test_a_run_does_not_go_on_with_another_version
    _, summary = TrialBench.run(%w[good], progress: Interrupting.new(2))
    summary.record.header["models"].first["versions"] = ["good 0.9"]
    error = assert_raises(Heddle::Lab::Error) { TrialBench.run(%w[good], resumed: summary.record) }
    assert_match(/\Athe run cannot go on: its models was .*good 0\.9.*, and is .* now\z/, error.message)
  end

  def test_a_terminal_shows_the_rounds_that_are_done_and_ctrl_c_keeps_them
    Dir.mktmpdir do |directory|
      file = File.join(directory, "trial.json")
      pressed = nil
      screen, status = on_a_terminal(*ASKED, "40", "--out", directory) do |terminal, shown|
        pressed ||= shown.match?(/─.*round 3, .* left/m) && terminal.write("\x03")
      end
      assert_equal 130, status.exitstatus, screen
      assert_includes screen, "for the others: heddle bench delay --resume #{file}"
      record = Heddle::Lab::Record.read(file)
      assert record.interrupted?
      assert_operator record.rounds.size, :>=, 12
      assert_includes File.read(File.join(directory, "trial.md")), "40 rounds, interrupted,"
      screen[/.*\^C/m].gsub(/\e\[[\d;]*\w/, "").split(/[\r\n]+/).each { |line| assert_operator line.size, :<=, 60 }
    end
  end

  def test_resume_takes_its_options_from_the_file
    Dir.mktmpdir do |directory|
      file = File.join(directory, "trial.json")
      assert_equal 0, cli(*ASKED, "2", "--out", directory).first
      whole = Heddle::Lab::Record.read(file)
      assert_equal [64, "", "heddle: #{file} lacks nothing: its run came to its end\n"],
        cli("bench", "delay", "--resume", file).then { |status, out, err| [status, out, err.lines.first] }
      part = Heddle::Lab::Record.new(whole.header.merge("interrupted" => true))
      part.rounds.concat(whole.rounds.first(5))
      File.write(file, part.to_json)
      status, _, err = cli("bench", "delay", "--resume", file)
      assert_equal 0, status, err
      assert_equal cells(whole), cells(Heddle::Lab::Record.read(file))
      refute Heddle::Lab::Record.read(file).interrupted?
    end
  end

  def test_resume_of_something_else
    Dir.mktmpdir do |directory|
      file = File.join(directory, "part.json")
      {"{}" => "this is not a record", "[" => "this is not JSON"}.each do |text, due|
        File.write(file, text)
        status, _, err = cli("bench", "delay", "--resume", file)
        assert_equal 69, status
        assert_match(/part\.json: #{due}/, err)
      end
      assert_match(/cannot read .*absent/, cli("bench", "delay", "--resume", File.join(directory, "absent"))[2])
      assert_match(/leave out the others/, cli("bench", "delay", "--rounds", "2", "--resume", file)[2])
      _, summary = TrialBench.run(%w[good], progress: Interrupting.new(2))
      File.write(file, summary.record.to_json)
      assert_match(/is a run of bench trial, not of delay/, cli("bench", "delay", "--resume", file)[2])
    end
  end

  def test_a_log_gets_a_line_a_round
    status, _, err = cli(*%w[bench delay --requests 5 --delays 0 --models threads --rounds 3 --no-twins])
    assert_equal 0, status
    ruby = RUBY_DESCRIPTION[/\Aruby \S+/]
    lines = (1..2).map { |n| "heddle: round #{n} of 3 on #{ruby} is done, #{n} of 3 cells, \\d+ s left\n" }
    assert_match(/\A#{lines.join}\z/, err)
  end

  def test_how_long_it_takes
    known = {0.2 => "1 s", 89 => "89 s", 91 => "2 min", 3600 => "60 min", 5400 => "1 h 30 min", 7260 => "2 h 1 min"}
    assert_equal known, known.keys.to_h { |seconds| [seconds, Heddle::Lab::Progress.duration(seconds)] }
  end

  def test_a_terminals_tables_of_each_bench_hold_after_any_round
    files = Dir.glob(File.expand_path("../../bench/results/*-ruby4*.json", __dir__)).grep_v(/yjit|-[a-z]+-ruby/)
    assert_operator files.size, :>, 5
    files.each do |file|
      record = Heddle::Lab::Record.read(file)
      part = Heddle::Lab::Record.new(record.header)
      part.rounds.concat(record.rounds.first(1 + record.rounds.size / 8))
      text = StringIO.new
      Heddle::Lab::CLI::BenchCommand.new(Heddle::Lab::Bench.find(record.header["bench"]).new, text, text).show(part)
      assert_includes text.string, record.rounds.first.model, file
    end
  end

  private

  # Yields what the terminal of 24 lines of 60 characters has been sent, until the command ends.
  def on_a_terminal(*argv)
    PTY.spawn(EXE, *argv) do |out, input, pid|
      out.winsize = [24, 60]
      shown = +""
      begin
        Timeout.timeout(60) do
          loop do
            shown << out.readpartial(1000)
            yield input, shown.dup.force_encoding(Encoding::UTF_8).scrub
          end
        end
      rescue Errno::EIO
        return [shown.force_encoding(Encoding::UTF_8), Process.wait2(pid).last]
      end
    end
  end
end

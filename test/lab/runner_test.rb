# frozen_string_literal: true

require "test_helper"
require "stringio"
require "lab/trial_bench"

class LabRunnerTest < Minitest::Test
  def trouble(model, deadline: 20)
    _, summary = TrialBench.run([model], rounds: 1, deadline: deadline)
    refute summary.record.clean?
    summary.troubles(model, "x1").first
  end

  def test_a_clean_run
    _, summary = TrialBench.run(%w[good])
    assert summary.record.clean?
    assert_equal [10.0, 20.0], %w[x1 x2].map { |name| summary.spread("good", name, TrialBench::OPERATIONS).median }
    measures = summary.record.rounds.first.measures
    %w[wall cpu user system gc].each { |key| assert_operator measures[key], :>=, 0, key }
    assert_operator measures["peak_rss_kib"], :>, 1000
  end

  def test_a_deterministic_case_is_measured_once
    bench, summary = TrialBench.run(%w[good], constant: "x2")
    assert_equal [4, 1], %w[x1 x2].map { |name| summary.record.rounds.count { |round| round.case == name } }
    assert_equal 20.0, summary.spread("good", "x2", TrialBench::OPERATIONS).median
    bench.tables(summary) # without a noise floor for that
  end

  def test_a_hanging_cell_is_stopped_and_reported
    assert_within(15) { assert_equal "no answer after 1.5 s: stopped", trouble("hang", deadline: 1.5) }
  end

  def test_a_cell_that_hangs_is_measured_once
    _, summary = TrialBench.run(%w[good hang], rounds: 2, deadline: 1.5)
    assert_equal %w[x1 x2], summary.record.rounds.filter_map { |round| round.case if round.model == "hang" }.sort
  end

  def test_a_cell_that_crashes
    assert_equal "the process killed by SIGKILL without a result: about to fall", trouble("crash")
  end

  def test_a_cell_that_leaves
    assert_equal "the process ended with status 3 without a result", trouble("leave")
  end

  def test_a_cell_that_raises
    assert_equal "ArgumentError: no, thank you", trouble("fail")
  end

  def test_wrong_answers_are_counted
    assert_equal "1 errors, the first: wrong answer: \"dome\"", trouble("wrong")
  end

  def test_a_missing_model_is_named_and_left_out
    _, summary = TrialBench.run(%w[good absent], rounds: 1)
    assert_equal [{"name" => "absent", "reason" => "LoadError: cannot load such file -- absent"}],
      summary.record.header["missing"]
    assert_equal %w[good], summary.models
  end

  def test_no_model_at_all
    error = assert_raises(Heddle::Lab::Error) { TrialBench.run(%w[absent]) }
    assert_match(/no model can run:\n  absent: LoadError/, error.message)
  end

  def test_the_environment_of_a_model_reaches_its_process
    _, summary = TrialBench.run(%w[heddle@epoll], rounds: 1)
    assert_equal "epoll", summary.record.rounds.first.measures["variable"]
  end

  def test_the_reference_is_measured_against_itself
    _, summary = TrialBench.run(%w[good wrong])
    twins = summary.record.rounds.select(&:twin)
    assert_equal [%w[good x1], %w[good x1], %w[good x2], %w[good x2]],
      twins.map { |round| [round.model, round.case] }.sort
    assert_equal 0.0, summary.floor("good", "x1", TrialBench::OPERATIONS)
    assert_in_delta 0.9, summary.compare("wrong", "good", "x1", TrialBench::OPERATIONS).ratio.median
  end

  def test_without_twins
    bench, summary = TrialBench.run(%w[good wrong], rounds: 1, twins: false)
    assert_equal 4, summary.record.rounds.size
    assert_empty summary.record.rounds.select(&:twin)
    bench.tables(summary)
  end

  def test_one_failing_round_does_not_stop_the_others
    _, summary = TrialBench.run(%w[good fail])
    assert_equal 10.0, summary.spread("good", "x1", TrialBench::OPERATIONS).median
    assert_nil summary.spread("fail", "x1", TrialBench::OPERATIONS).median
  end
end

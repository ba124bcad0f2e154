# frozen_string_literal: true

require "test_helper"
require "heddle/lab"

class LabStatisticsTest < Minitest::Test
  Statistics = Heddle::Lab::Statistics

  def test_median
    assert_equal 3.0, Statistics.median([5, 1, 3])
    assert_equal 2.5, Statistics.median([4, 1, 3, 2])
    assert_nil Statistics.median([])
  end

  def test_ratio_of_equal_pairs_is_exact
    ratio = Statistics.ratio([[2, 1], [4, 2], [6, 3]])
    assert_equal [2.0, 2.0, 2.0], ratio.to_a
  end

  def test_pairs_cancel_a_drift_that_both_share
    assert_equal [1.5, 1.5, 1.5], Statistics.ratio([[15, 10], [150, 100], [1500, 1000]]).to_a
  end

  def test_interval_holds_the_median_and_repeats
    pairs = [[11, 10], [12, 10], [9, 10], [13, 10], [10, 10]]
    ratio = Statistics.ratio(pairs, seed: 5)
    assert_in_delta 1.1, ratio.median
    assert_operator ratio.low, :<=, ratio.median
    assert_operator ratio.high, :>=, ratio.median
    assert_equal ratio, Statistics.ratio(pairs, seed: 5)
  end

  # The percentile bootstrap of a median should cover the truth about 95 times of 100; 85 would be a mistake in it.
  def test_interval_covers_the_truth
    random = Random.new(1)
    hits = 100.times.count do
      ratio = Statistics.ratio(Array.new(15) { [1 + random.rand(-0.2..0.2), 1] })
      1.between?(ratio.low, ratio.high)
    end
    assert_operator hits, :>=, 85
  end

  def test_noise
    ratio = ->(median, low, high) { Statistics::Ratio.new(median: median, low: low, high: high) }
    assert Statistics.within_noise?(ratio.call(1.1, 0.9, 1.3), nil), "the interval holds 1"
    assert Statistics.within_noise?(ratio.call(1.04, 1.02, 1.06), 0.05), "smaller than the floor"
    refute Statistics.within_noise?(ratio.call(1.2, 1.1, 1.3), 0.05)
    assert_in_delta 0.03, Statistics.floor(ratio.call(1.0, 0.97, 1.01))
  end

  def test_nothing_to_compare
    assert_nil Statistics.ratio([])
    assert_nil Statistics.ratio([[1, 0]])
    assert_nil Statistics.floor(nil)
  end
end

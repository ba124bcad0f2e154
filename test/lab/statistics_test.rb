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

  def test_interval_holds_the_median
    ratio = Statistics.ratio([[11, 10], [12, 10], [9, 10], [13, 10], [10, 10]])
    assert_in_delta 1.1, ratio.median
    assert_equal [0.9, 1.3], [ratio.low, ratio.high]
  end

  # Every sample is drawn, where there are few enough.
  def test_shares_are_those_of_all_samples
    (1..6).each do |size|
      places = (0...size).to_a
      middle = [(size - 1) / 2, size / 2]
      all = places.repeated_permutation(size).group_by { |sample| sample.sort.values_at(*middle) }
      shares = all.transform_values { |samples| samples.size / (size**size).to_f }
      Statistics.resampling(size).each do |low, high, share|
        assert_in_delta shares.fetch([low, high]), share, 1e-9, "#{low} and #{high} of #{size}"
      end
      assert_equal shares.size, Statistics.resampling(size).size
    end
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

  # Against a list of all ratios.
  def test_the_quantiles_of_ratios
    random = Random.new(2)
    20.times do
      above, below = Array.new(2) { Array.new(random.rand(1..6)) { random.rand(1..5) } }
      ratios = medians(above).product(medians(below)).map { |(a, share), (b, other)| [a / b, share * other] }.sort
      ends = [0.025, 0.975].map do |wanted|
        sum = 0.0
        (ratios.find { |_, share| (sum += share) >= wanted - 1e-12 } || ratios.last).first
      end
      assert_equal ends, Statistics.ratio_of_medians(above, below).to_a.drop(1), [above, below].inspect
    end
  end

  # The ratios of the medians: 672,400.
  def test_many_values
    values = (1..40).to_a
    ratio = Statistics.ratio_of_medians(values, values)
    assert_operator ratio.low, :<, 1
    assert_in_delta 1, ratio.low * ratio.high, 1e-9
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

  private

  # The medians of all samples, with the shares of the samples that have them.
  def medians(values)
    sorted = values.sort
    Statistics.resampling(sorted.size).map { |low, high, share| [(sorted[low] + sorted[high]) / 2.0, share] }
  end
end

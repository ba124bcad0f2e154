# frozen_string_literal: true

require "test_helper"
require "heddle/lab"

# Where the level of made-up series changes. Their noise is drawn with fixed seeds: one hundredth of the figure.
class LabHistoryStepsTest < Minitest::Test
  Steps = Heddle::Lab::History::Steps
  NOISE = 0.01
  FLOOR = NOISE * 2.77 # half a 95 % interval of the ratio of two such figures

  def setup
    @random = Random.new(42)
  end

  # @return [Array<Float>] the levels with noise, as Box and Muller draw it
  def noisy(levels)
    levels.map do |level|
      level * Math.exp(NOISE * Math.sqrt(-2 * Math.log(1 - @random.rand)) * Math.cos(2 * Math::PI * @random.rand))
    end
  end

  def steps(levels, floor: FLOOR) = Steps.new(noisy(levels), floor)

  def test_noise_has_no_step
    found = 500.times.count { steps([100] * (6 + @random.rand(20))).places.any? }
    assert_operator found, :<=, 2
  end

  # The figures say how large the noise is, where no run has a floor.
  def test_noise_without_a_floor
    found = 300.times.count { steps([100] * 20, floor: 0.0).places.any? }
    assert_operator found, :<=, 3
  end

  def test_one_step_is_found_where_it_is
    [3, 7, 10, 17].each do |place|
      found = steps([100] * place + [115] * (20 - place))
      assert_equal [place], found.places
      assert_equal [0...place, place...20], found.levels
      assert_nil found.drift
    end
    assert_equal [8], steps([100] * 8 + [80] * 6).places, "downwards"
  end

  def test_three_runs_on_each_side_are_enough
    assert_equal [3], steps([100] * 3 + [120] * 3).places
  end

  def test_two_steps
    assert_equal [8, 14], steps([100] * 8 + [130] * 6 + [115] * 6).places
    assert_equal [5, 10], steps([100] * 5 + [130] * 5 + [100] * 5).places, "there and back"
  end

  def test_what_the_floor_explains_is_no_step
    levels = [100] * 20 + [102] * 20
    assert_equal [20], Steps.new(levels, 0.0).places
    assert_equal [20], Steps.new(levels, 0.019).places
    assert_empty Steps.new(levels, 0.021).places
  end

  # It would be cut into many steps, none of which is where something happened.
  def test_a_drift_is_no_step
    [1.003, 1.01, 0.99].each do |factor|
      found = steps(Array.new(40) { |place| 100 * factor**place })
      assert_empty found.places
      assert_in_delta factor**39, found.drift, 0.05
    end
  end

  def test_an_outlier_is_no_step
    20.times do |place|
      [0.5, 3].each { |factor| assert_empty steps(Array.new(20) { |at| (at == place) ? 100 * factor : 100 }).places }
    end
    found = steps([100] * 8 + [130] * 12).places
    assert_equal [8], found
    levels = [100] * 8 + [130] * 12
    [3, 11, 15].each { |place| assert_equal [8], steps(levels.dup.tap { |some| some[place] = 400 }).places }
  end

  def test_too_few_runs
    [[], [1.0], [1.0, 2.0], [1.0, 1.0, 1.0, 2.0, 2.0]].each do |figures|
      assert_empty Steps.new(figures, 0.0).places
      assert_nil Steps.new(figures, 0.0).drift
      refute Steps.enough?(figures.size)
    end
    assert Steps.enough?(6)
  end

  # Counts have no noise: any change is a step.
  def test_counts
    assert_equal [4], Steps.new([41] * 4 + [42] * 3, 0.0).places
    assert_empty Steps.new([41] * 12, 0.0).places
  end

  def test_the_same_figures_give_the_same_steps
    figures = noisy([100] * 30 + [110] * 30)
    assert_equal [Steps.new(figures, FLOOR).places], Array.new(3) { Steps.new(figures, FLOOR).places }.uniq
  end
end

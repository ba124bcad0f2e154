# frozen_string_literal: true

require "test_helper"
require "heddle/lab"

class LabPlanTest < Minitest::Test
  MODELS = %w[a b c d].map { |kind| Heddle::Lab::Model.new(kind) }
  CASES = %w[x y].map { |name| Heddle::Lab::Case.new(name: name, params: {}) }

  def plan(seed: 3, rounds: 4) = Heddle::Lab::Plan.new(cases: CASES, models: MODELS, rounds: rounds, seed: seed)

  def order(cells, round, name)
    cells.select { |cell| cell.round == round && cell.bench_case.name == name }.map { |cell| cell.model.kind }
  end

  def test_every_model_once_a_case_and_round
    cells = plan.to_a
    assert_equal plan.size, cells.size
    1.upto(4) { |round| %w[x y].each { |name| assert_equal %w[a b c d], order(cells, round, name).sort } }
  end

  def test_even_rounds_turn_the_order_round
    cells = plan.to_a
    %w[x y].each { |name| assert_equal order(cells, 1, name).reverse, order(cells, 2, name) }
  end

  def test_a_seed_gives_one_order
    names = ->(seed) { plan(seed: seed, rounds: 20).map { |cell| cell.model.kind } }
    assert_equal names.call(3), names.call(3)
    refute_equal names.call(3), names.call(4)
  end
end

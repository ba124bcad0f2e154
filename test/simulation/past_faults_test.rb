# frozen_string_literal: true

require "test_helper"
require "support/past_faults"

runs_on rubies: :oldest

# The models find faults that this library has had: script/find-past-faults looks for all of them, this for some that
# need no compiler.
class PastFaultsTest < Minitest::Test
  hard_deadline 240

  FOUND = %w[pool_batch_leaves_its_tasks pool_stop_interrupts_later executor_counts_ended_blocks].freeze

  def test_each_patch_fits_the_tree
    faults = PastFaults.all
    assert_operator faults.size, :>=, 25
    faults.each do |fault|
      assert fault.fits?, "#{fault.path} does not fit the tree any more: put the same fault into the present code"
      assert_path_exists File.join(__dir__, fault.model)
      refute_empty fault.description
    end
  end

  def test_some_are_found
    faults = PastFaults.all.select { |fault| FOUND.include?(fault.name.sub(/\A\d+_/, "")) }
    assert_equal FOUND.size, faults.size
    PastFaults.open do |tree|
      faults.each { |fault| assert tree.find(fault, 60), "no model finds #{fault.name}" }
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "heddle/drivers"

# The drivers that mend connections of other gems, all in one program.
class DriversOfOtherGemsTest < Minitest::Test
  # Each is a class in one module: one of them that is named as the project's own module hides that from the others.
  def test_no_driver_hides_heddle
    files = Dir["#{File.expand_path("../../lib/heddle/drivers", __dir__)}/*.rb"]
    assert_operator files.size, :>=, 6
    files.each { |file| require file }
    refute Heddle.const_get(:Drivers).const_defined?(:Heddle, false), "a driver hides Heddle from the others"
  end
end

# frozen_string_literal: true

require "test_helper"
require "heddle/integrations/database_gems"

# What repairs the connections of other gems, all in one program.
class DatabaseGemsTest < Minitest::Test
  # Each is a class in one module: one of them that is named as the project's own module hides that from the others.
  def test_no_gem_hides_heddle
    files = Dir["#{File.expand_path("../../lib/heddle/integrations/database_gems", __dir__)}/*.rb"]
    assert_operator files.size, :>=, 6
    files.each { |file| require file }
    refute Heddle.const_get(:DatabaseGems).const_defined?(:Heddle, false), "a gem hides Heddle from the others"
  end
end

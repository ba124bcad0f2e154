# frozen_string_literal: true

require "test_helper"

# The list of what an emulator does otherwise than a kernel is of this repository and of this kernel.
class EmulatorTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  def test_the_files_exist
    Emulator::DIFFERENCES.flat_map { |difference| difference.tests.keys }.each do |path|
      assert_path_exists "#{ROOT}/#{path}"
    end
  end

  def test_each_difference_has_a_program
    programs = Dir["#{ROOT}/test/support/emulator/*.rb"].map { |path| File.basename(path, ".rb") }
    assert_equal programs.sort, Emulator::DIFFERENCES.map(&:name).sort
  end

  def test_a_kernel_does_none_of_it
    skip "an emulator runs this" if Emulator.name
    Emulator::DIFFERENCES.each do |difference|
      out = IO.popen([RbConfig.ruby, "--disable=gems", difference.program], &:read)
      assert_equal "same\n", out, difference.name
    end
  end

  def test_a_difference_leaves_out_its_tests_alone
    difference = Emulator::Difference.new(name: "one", reason: "a reason", tests: {"test/one_test.rb" => /\Atest_a/})
    assert difference.covers?("test/one_test.rb", "test_a_wait")
    refute difference.covers?("test/one_test.rb", "test_the_end")
    refute difference.covers?("test/other_test.rb", "test_a_wait")
  end
end

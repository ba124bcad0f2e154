# frozen_string_literal: true

require "test_helper"
require "compatibility/page"

runs_on rubies: :oldest

# doc/compatibility.md says what was measured, and nothing else.
class CompatibilityPageTest < Minitest::Test
  PAGE = Compatibility::Page.new

  def test_the_page_is_made_from_the_results
    assert_equal PAGE.text, File.read(Compatibility::Page::PATH), "rake compatibility:page writes it"
  end

  def test_each_library_has_a_row_and_each_fault_its_reason
    assert_empty PAGE.complaints
  end

  def test_no_result_is_of_a_library_that_is_not_described
    known = Compatibility.libraries.keys
    Compatibility::Results.all.each { |results| assert_empty results.libraries.keys - known, results.ruby }
  end
end

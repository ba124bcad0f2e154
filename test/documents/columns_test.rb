# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../rakelib/columns"

# The width of lines that `rake style` enforces.
class ColumnsTest < Minitest::Test
  WIDE = ("word " * 26).strip.freeze

  def test_a_wide_line_is_named_with_its_file_its_number_and_its_width
    Dir.mktmpdir do |root|
      FileUtils.mkdir_p(File.join(root, "lib"))
      File.write(File.join(root, "lib/some.rb"), "# narrow\n# #{WIDE}\n")
      assert_equal ["lib/some.rb:2: 131 columns (120 at most)"], Columns.complaints(root)
    end
  end

  def test_characters_count_and_not_bytes
    assert_empty Columns.too_wide("# #{"µ" * 118}\n")
    assert_equal [[1, 121]], Columns.too_wide("# #{"µ" * 119}\n")
  end

  def test_tables_fenced_code_and_addresses_of_links_are_exempt_in_markdown
    assert_empty Columns.too_wide("| #{WIDE} |\n", markdown: true)
    assert_empty Columns.too_wide("```\n#{WIDE}\n```\n", markdown: true)
    assert_empty Columns.too_wide("See [the page](https://example.org/#{"a" * 120}).\n", markdown: true)
    assert_equal [[4, 129]], Columns.too_wide("```\n\n```\n#{WIDE}\n", markdown: true)
  end

  def test_the_files_of_this_tree
    assert_empty Columns.complaints(File.expand_path("../..", __dir__))
  end
end

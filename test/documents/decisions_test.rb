# frozen_string_literal: true

require "test_helper"

# doc/adr: the numbers have no gaps, each page has a status with its date, and the index (README.md) lists each page
# once, with its title.
class DecisionsTest < Minitest::Test
  FOLDER = File.expand_path("../../doc/adr", __dir__)

  STATUS = /\A# \d+\. .+\n\n(?:Accepted|Replaced by \[\d+\]\(0.+\.md\)), \d{4}-\d\d-\d\d\n\n## /

  def test_every_page_has_a_status_and_its_date
    assert_empty Dir["#{FOLDER}/0*.md"].sort.reject { |page| File.read(page).match?(STATUS) }
  end

  def test_the_index_lists_every_page_once
    pages = Dir["#{FOLDER}/0*.md"].sort
    titles = pages.map { |page| File.open(page, &:readline)[/\A# (\d+\. .+)\n/, 1] }
    assert_equal (1..pages.size).to_a, titles.map(&:to_i)
    assert_equal (1..pages.size).to_a, pages.map { |page| File.basename(page).to_i }
    lines = File.readlines("#{FOLDER}/README.md").filter_map { |line| line[/\A- \[(.+)\n/, 1] }
    assert_equal titles.zip(pages).map { |title, page| "#{title}](#{File.basename(page)})" }.sort, lines.sort
  end
end

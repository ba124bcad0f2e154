# frozen_string_literal: true

require "test_helper"

# doc/limits.md promises a test for each limit, and links only to what exists.
class LimitsDocumentTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  TEXT = File.read("#{ROOT}/doc/limits.md")

  def test_each_limit_names_tests_that_exist
    sections = TEXT.gsub(/^## .*?(?=^###)/m, "").split(/^### /).drop(1)
    refute_empty sections
    sections.each do |section|
      tests = section.scan(%r{`(test/[\w/]+(?:\.rb)?)`}).flatten
      refute_empty tests, section.lines.first
      tests.each { |path| assert_path_exists "#{ROOT}/#{path}", section.lines.first }
    end
  end

  def test_links
    TEXT.scan(/\]\(([^)#:]+)\)/).flatten.each { |path| assert_path_exists "#{ROOT}/doc/#{path}" }
    headings = TEXT.scan(/^##+ (.*)/).flatten.map { |heading| heading.downcase.delete("^a-z0-9_ -").tr(" ", "-") }
    File.read("#{ROOT}/README.md").scan(/\(doc\/limits\.md#([^)]+)\)/).flatten.each do |anchor|
      assert_includes headings, anchor
    end
  end
end

# frozen_string_literal: true

require "test_helper"
require "yaml"
require "support/matrix"
require_relative "../../rakelib/native_build"

# guides/upgrading_and_versions.md names each Ruby that is tested or promised, and each thing that is deprecated.
class VersionsTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  GUIDE = File.read("#{ROOT}/guides/upgrading_and_versions.md")
  # What marks a deprecation: YARD's tag, and the ways of Ruby and of its C API to warn of one.
  MARK = /@deprecated\b|category: :deprecated|\bdeprecate_constant\b|Gem::Deprecate|\bRB_WARN_CATEGORY_DEPRECATED\b/
  # The name behind a tag, or behind a C function's call-seq.
  NAMED = /^ *(?:(?:def (?:self\.)?|class |module |attr_\w+ :|\* call-seq:\s*\n[ *]*)([\w?!]+)|([A-Z]\w+) =)/

  def test_rubies
    table = rows("Rubies").to_h { |ruby, *dates, _| [ruby, dates] }
    workflows = Dir["#{ROOT}/.github/workflows/*.yml"].flat_map { |path| rubies_of(YAML.load_file(path)) }
    named = (workflows + NativeBuild::RUBIES + [TestMatrix::FLOOR, *TestMatrix::NEWER]).uniq - ["head"]
    assert_operator named.size, :>, 4
    assert_equal named.sort, table.keys
    assert_empty table.values.flatten.grep_v(/\A20\d\d-(?:0[1-9]|1[0-2])\z/)
  end

  def test_the_oldest_ruby
    Dir["#{ROOT}/{,*/}*.gemspec"].each do |path|
      required = Gem::Specification.load(path).required_ruby_version.to_s
      assert_match(/\A>= #{Regexp.escape(rows("Rubies").first.first)}\b/, required)
      assert_includes rows("Rubies").first.last, required.delete_prefix(">= ")
    end
  end

  def test_deprecations
    files = Dir.glob("{,lab/,odbc/}{lib,ext}/**/*.{rb,c,h}", base: ROOT)
    deprecated = files.flat_map { |file| deprecated_in(File.read(File.join(ROOT, file), encoding: "UTF-8")) }
    table = rows("Deprecations").map { |name, *| name.delete("`")[/[\w?!]+\z/] }
    assert_equal deprecated.uniq.sort, table.sort
    assert_equal table.empty?, GUIDE.include?("Nothing is deprecated")
  end

  # So that the test above does not pass because it sees nothing.
  def test_what_counts_as_a_deprecation
    {
      "# @deprecated Use {#run}.\ndef start(x)\n" => ["start"],
      "# @deprecated Use it.\n# @return [Integer]\nOLD = 1\n" => ["OLD"],
      "def old?\n  warn \"gone\", category: :deprecated\nend\n" => ["old?"],
      "/*\n * call-seq:\n *   old!(x) -> nil\n *\n * @deprecated\n */" => ["old!"],
      "class Old\n  # a class of its own\n  deprecate_constant :Older\nend" => ["Old"],
      "def fine = 1 # deprecated in the RFC\n" => []
    }.each { |text, names| assert_equal names, deprecated_in(text), text }
  end

  private

  # @return [Array<String>] the names that the marks of a file are at: in a comment, of what follows
  def deprecated_in(text)
    text.to_enum(:scan, MARK).map do
      match = Regexp.last_match
      before, after = match.pre_match, match.post_match
      ahead = match[0] == "@deprecated" && !in_c?(before)
      (ahead ? after.match(NAMED) : before.to_enum(:scan, NAMED).map { Regexp.last_match }.last).captures.compact.first
    end
  end

  def in_c?(before) = before.match?(%r{/\*(?:[^*]|\*(?!/))*\z})

  # Of the table below a heading.
  def rows(heading)
    GUIDE[/^## #{heading}$(.*?)(?=^## |\z)/m, 1].scan(/^\|(.+)\|$/).drop(2)
      .map { |(row)| row.split("|").map(&:strip) }
  end

  def rubies_of(node)
    case node
    when Hash
      node.flat_map { |key, value| %w[ruby ruby-version].include?(key) ? Array(value) : rubies_of(value) }
    when Array then node.flat_map { |value| rubies_of(value) }
    else []
    end.grep(/\A\d|\Ahead/)
  end
end

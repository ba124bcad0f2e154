# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "tmpdir"
require_relative "../../rakelib/release_check"

# A tree is ready when its changelog has the version's date, its gemspecs have addresses, and git has no changes to
# commit.
class ReleaseCheckTest < Minitest::Test
  FILES = {
    "lib/heddle/version.rb" => %(VERSION = "1.2.3"\n), "CHANGELOG.md" => "## 1.2.3 - 2030-01-31\n- one\n- two\n",
    "heddle.gemspec" => "", "lab/heddle-lab.gemspec" => "", "odbc/heddle-odbc.gemspec" => "",
    "README.md" => "", "guides/getting_started.md" => ""
  }.freeze

  def test_a_tree_that_is_ready
    assert_empty problems
  end

  def test_trees_that_are_not_ready
    {
      {"CHANGELOG.md" => "## 1.2.3\n"} => /## 1\.2\.3 - YYYY/,
      {"CHANGELOG.md" => "## 1.2.2 - 2030-01-31\n"} => /## 1\.2\.3 - YYYY/,
      {"CHANGELOG.md" => "## 1.2.3 - 2030-01-31\n- one\n  more\n"} => /one line an entry/,
      {"heddle.gemspec" => "https://heddle.example"} => /heddle\.gemspec: put/
    }.each do |change, message|
      found = problems(change)
      assert_equal 1, found.size
      assert_match message, found.first
    end
  end

  def test_git
    assert_match(/uncommitted/, problems { |folder| File.write(File.join(folder, "more"), "") }.join)
    assert_match(/v1\.2\.3 is there/, problems { |folder| git(folder, "tag", "v1.2.3") }.join)
  end

  # This tree's changelog, too, has one line an entry.
  def test_our_changelog
    assert_empty ReleaseCheck.new(File.expand_path("../..", __dir__)).problems.grep(/one line/)
  end

  private

  def problems(change = {})
    Dir.mktmpdir do |folder|
      FILES.merge(change).each do |path, text|
        FileUtils.mkdir_p(File.dirname(File.join(folder, path)))
        File.write(File.join(folder, path), text)
      end
      git(folder, "init", "--quiet")
      git(folder, "add", ".")
      git(folder, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "--message", "all")
      yield folder if block_given?
      ReleaseCheck.new(folder).problems
    end
  end

  def git(folder, *arguments)
    assert system("git", *arguments, chdir: folder)
  end
end

# frozen_string_literal: true

require "test_helper"

# A file that a comment, a document or a test names by its path exists. A path that was left behind by a move sends a
# reader astray; in a test's pattern it matches nothing, and the test passes.
class NamedPathsTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  FILES = "{*.md,{bin,script}/*,{doc,guides}/**/*.md,{lib,test,lab,odbc,rakelib,sig,examples}/**/*.{rb,rake}," \
    "{ext,lab/ext,odbc/ext}/**/*.{c,h,rb}}"
  OF_TREE = %r{(?<![\w/.-])((?:lib/heddle|ext/heddle|odbc/lib|odbc/ext|rakelib|test/[a-z]+)/[\w./]+\.(?:rb|c|h|rake))\b}
  OF_LAYER = %r{(?<![\w/.-])((?:#{Dir.glob("**/", base: "#{ROOT}/ext/heddle").map { |path| path.chomp("/") }
    .reject(&:empty?).sort.reverse.join("|")})/\w+\.[ch])\b}
  # Other projects' files, and pages that YARD makes.
  EXEMPT = %r{\Adoc/api/|\Adoc/upstream/|\Atest/peers/|\Alab/ext/objects/}
  # What stands for any file.
  EXAMPLES = %w[
    test/loop/some_test.rb test/unmodified/x_test.rb ext/heddle/a.c odbc/ext/a.c lib/heddle/db/SCHEME.rb
  ].freeze

  def test_named_files_exist
    missing = Dir.glob(FILES, base: ROOT).grep_v(EXEMPT).flat_map do |file|
      text = File.read(File.join(ROOT, file), encoding: "UTF-8")
      paths = text.scan(OF_TREE).flatten + text.scan(OF_LAYER).flatten.map { |path| "ext/heddle/#{path}" }
      paths.uniq.reject { |path| EXAMPLES.include?(path) || File.exist?(File.join(ROOT, path)) }
        .map { |path| "#{file}: #{path}" }
    end
    assert_empty missing
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/upstream_patches"
require "tmpdir"

# doc/upstream has changes to send to Ruby: each has its message, and a test of its own.
class UpstreamTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  TEXT = "one\ntwo\nthree\nfour\n"
  BLOB = Digest::SHA1.hexdigest("blob #{TEXT.bytesize}\0#{TEXT}")
  SCRIPT = "# ruby/ruby #{"a" * 40}\n*** lib/a.rb #{BLOB}\n4a\nfive\n.\n2,3c\n2\n\n.\n1d\n"

  UpstreamPatch.all.each do |patch|
    define_method("test_#{patch.name}") do
      assert_includes File.read("#{ROOT}/doc/ruby.md"), "(upstream/#{patch.name}.md)"
      assert_includes File.read("#{UpstreamPatch::FOLDER}/README.md"), "(#{patch.name}.md)"
      assert_match(/\A# \S.*\n\n\S/, File.read("#{UpstreamPatch::FOLDER}/#{patch.name}.md"), "a subject, and a text")
      tests, code = patch.changes.partition { |change| change.path.start_with?("test/") }
      refute_empty code
      assert_match(/^ +def test_/, tests.flat_map { |change| change.commands.flat_map(&:last) }.join)
    end
  end

  def test_each_message_has_a_patch
    names = Dir.children(UpstreamPatch::FOLDER).map { |file| File.basename(file, ".*") } - ["README"]
    assert_equal UpstreamPatch.all.flat_map { |patch| [patch.name] * 2 }, names.sort
    refute_empty names
  end

  def test_a_script_becomes_a_patch
    patch = UpstreamPatch.new("a", SCRIPT)
    assert_equal "2\n\nfour\nfive\n", patch.changes.first.apply(TEXT)
    Dir.mktmpdir do |folder|
      FileUtils.mkdir_p("#{folder}/lib")
      File.write("#{folder}/lib/a.rb", TEXT)
      assert_equal <<~PATCH.tr("_", " "), patch.unified(folder)
        --- a/lib/a.rb
        +++ b/lib/a.rb
        @@ -1,4 +1,4 @@
        -one
        -two
        -three
        +2
        +
        _four
        +five
      PATCH
    end
  end

  def test_another_text_and_faulty_scripts_are_refused
    error = assert_raises(ArgumentError) { UpstreamPatch.new("a", SCRIPT).changes.first.apply("#{TEXT}five\n") }
    assert_match(/the change is for #{BLOB}/o, error.message)
    {["# ruby", "ruby"] => "names no commit", ["*** lib", "*** lib "] => "no file",
     ["\n4a\n", "\n1a\n"] => "last line to the first", ["\n2,3c", "\n3,2c"] => "2 is before 3",
     ["\n1d\n", "\n1e\n"] => "not a command", [".\n1d\n", ""] => "without an end"}.each do |(part, wrong), reason|
      error = assert_raises(ArgumentError, part) { UpstreamPatch.new("a", SCRIPT.sub(part, wrong)) }
      assert_match(/#{reason}/, error.message)
    end
  end
end

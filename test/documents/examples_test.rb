# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../rakelib/examples"

# What `rake examples` gives to steep, and which of its complaints count.
class ExamplesTest < Minitest::Test
  def test_each_snippet_becomes_a_file
    Dir.mktmpdir do |folder|
      File.write("#{folder}/guide.md", "# A\n```ruby\nputs 1\n```\n```sh\nls\n```\n```ruby\nputs 2\n```\n")
      Dir.chdir(File.expand_path("../..", __dir__)) do
        Examples.new("#{folder}/out").write(documents: ["#{folder}/guide.md"], programs: [])
      end
      code = Dir["#{folder}/out/code/*"].sort.to_h { |path| [File.basename(path), File.read(path)] }
      assert_equal({"guide_1.rb" => "puts 1\n", "guide_2.rb" => "puts 2\n"}, code)
      assert_path_exists "#{folder}/out/sig/heddle.rbs"
      assert_includes File.read("#{folder}/out/Steepfile"), %(library "timeout")
    end
  end

  def test_names_that_a_reader_fills_in_do_not_count
    counts = "code/a_1.rb:2:35: [error] Type `::Heddle::Stream` does not have method `exchnge`"
    output = <<~TEXT
      # Type checking files:
      code/a_1.rb:1:0: [error] Type `::Object` does not have method `urls`
      code/a_1.rb:1:5: [warning] Cannot find the declaration of constant: `CACHE`
      #{counts}
      │ Diagnostic ID: Ruby::NoMethod
      Detected 3 problems from 1 file
    TEXT
    assert_equal [counts], Examples.complaints(output)
  end
end

# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../rakelib/architecture"

# The layers of the C code stack: an upward include and a circle of files are found, and CONTRIBUTING draws the layers
# as they are.
class ArchitectureTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  LAYERS = File.join(ROOT, "ext/heddle")

  def test_no_layer_includes_a_layer_above_it
    assert_empty Architecture.new(LAYERS).violations
  end

  def test_an_upward_include_is_found
    with_layers do |layers|
      File.write(File.join(layers, "loop/wait.h"), %(#include "task/task.h"\n), mode: "a")
      assert_equal 1, Architecture.new(layers).violations.size
      assert_match %r{\Aloop/wait\.h:\d+ includes task/task\.h: loop may not know task\z},
        Architecture.new(layers).violations.first
    end
  end

  def test_layers_of_one_row_do_not_include_each_other
    with_layers do |layers|
      File.write(File.join(layers, "db/mysql/protocol.h"), %(#include "db/sqlite/database.h"\n), mode: "a")
      assert_match(%r{db/mysql may not know db/sqlite}, Architecture.new(layers).violations.join)
    end
  end

  def test_ruby_in_a_protocol_is_found
    with_layers do |layers|
      File.write(File.join(layers, "wire/http/head.h"), "#include <ruby.h>\n", mode: "a")
      File.write(File.join(layers, "wire/mysql/rows.c"), %(#include "heddle.h"\n), mode: "a")
      assert_equal ["wire/http/head.h includes Ruby's headers: test/fuzz runs wire/ without Ruby"],
        Architecture.new(layers).violations.grep(/head/)
      assert_match(%r{wire/mysql may not know ext/heddle}, Architecture.new(layers).violations.join)
    end
  end

  def test_an_unlisted_folder_is_found
    with_layers do |layers|
      Dir.mkdir(File.join(layers, "attic"))
      File.write(File.join(layers, "attic/box.h"), %(#include "heddle.h"\n))
      assert_match(/attic.* has no place/, Architecture.new(layers).violations.join)
    end
  end

  def test_a_table_of_functions_that_nobody_knows_is_found
    with_layers do |layers|
      File.write(File.join(layers, "loop/wait.h"), "struct way_up {\n    void (*call)(void);\n};\n", mode: "a")
      File.write(File.join(layers, "task/task.c"), "static const struct way_up up = {.call = one};\n", mode: "a")
      assert_equal ["task/task.c: by its struct way_up, loop calls a layer above it"],
        Architecture.new(layers).violations
    end
  end

  def test_a_circle_of_files_is_found
    with_layers do |layers|
      File.write(File.join(layers, "os/fork.c"), "void fork_x(void)\n{\n    pidfd_x();\n}\n", mode: "a")
      File.write(File.join(layers, "os/pidfd.c"), "void pidfd_x(void)\n{\n    fork_x();\n}\n", mode: "a")
      assert_equal ["os/fork.c, os/pidfd.c call each other in a circle"], Architecture.new(layers).violations
    end
  end

  def test_contributing_draws_the_layers_as_they_are
    assert_includes File.read(File.join(ROOT, "CONTRIBUTING.md")), Architecture.new(LAYERS).picture
  end

  def test_the_guide_draws_the_layers_in_their_order
    drawing = File.read(File.join(ROOT, "guides/how_it_works.md"))[/^```text\n(.*?)^```/m, 1]
    drawn = drawing.scan(%r{^│ ([\w/]+) }).flatten
    rows = Architecture::ROWS.flatten - [""]
    assert_equal rows.sort, (drawn - ["lib/heddle"]).sort
    heights = drawn.filter_map { |layer| Architecture::ROWS.index { |row| row.include?(layer) } }
    assert_equal heights.sort.reverse, heights
  end

  # doc/coverage.md tells which lines no test reaches.
  def test_the_files_of_the_coverage_page_exist
    named = File.read(File.join(ROOT, "doc/coverage.md")).scan(/`(\w+\.[ch])`/).flatten.uniq
    assert_operator named.size, :>, 10
    assert_empty named - Dir.glob("ext/**/*.{c,h}", base: ROOT).map { |path| File.basename(path) }
  end

  private

  def with_layers
    Dir.mktmpdir do |folder|
      FileUtils.cp_r(LAYERS, folder)
      yield File.join(folder, "heddle")
    end
  end
end

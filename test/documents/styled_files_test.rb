# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../rakelib/styled_files"

# `rake style` checks a file again only after a change of what decides: its path, its text, its mode, the rules.
class StyledFilesTest < Minitest::Test
  def setup
    @folder = Dir.mktmpdir
    @memory = File.join(@folder, "cache", "styled")
    @path = File.join(@folder, "a.rb")
    File.write(@path, "1\n")
  end

  def teardown = FileUtils.rm_rf(@folder)

  def test_a_file_in_order_is_remembered
    assert_equal [@path], checked
    assert_empty checked
    other = File.join(@folder, "b.rb")
    FileUtils.cp(@path, other)
    assert_equal [other], checked(@path, other)
  end

  def test_a_change_has_it_checked_again
    mode = File.stat(@path).mode
    checked
    assert_equal [@path], checked(rules: "newer")
    File.write(@path, "2\n")
    assert_equal [@path], checked
    File.chmod(0o755, @path)
    assert_equal [@path], checked
    File.write(@path, "1\n")
    File.chmod(mode, @path)
    assert_empty checked
  end

  def test_a_file_with_a_fault_is_not_remembered
    assert_raises(RuntimeError) { StyledFiles.new(@memory, "rules").check([@path]) { raise "a fault" } }
    assert_equal [@path], checked
  end

  private

  def checked(*paths, rules: "rules")
    seen = []
    StyledFiles.new(@memory, rules).check(paths.empty? ? [@path] : paths) { |unknown| seen.concat(unknown) }
    seen
  end
end

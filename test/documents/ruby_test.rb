# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# The programs of doc/ruby.md print what is written beneath them, on the Rubies that are named there. If one prints
# something else, Ruby has fixed it, or the page was never right.
class RubyDocumentTest < Minitest::Test
  include LoopHelpers

  TEXT = File.read("#{ROOT}/doc/ruby.md")
  SAYS = /^# Ruby (\d+\.\d+): (.*)/

  TEXT.scan(/^## (.*?)\n.*?(?=^## |\z)/m).flatten.each do |heading|
    section = TEXT[/^## #{Regexp.escape(heading)}\n.*?(?=^## |\z)/m]
    program = section[/^```ruby\n(.*?)^```/m, 1] or next
    expected = program.scan(SAYS).to_h[RUBY_VERSION[/\d+\.\d+/]]

    define_method("test_#{heading}") do
      skip "doc/ruby.md does not say what this Ruby does" unless expected
      assert_equal expected, assert_child(program, heddle: false).split.join(" ")
    end
  end

  def test_each_program_prints_what_the_newest_ruby_does
    programs = TEXT.scan(/^```ruby\n(.*?)^```/m).flatten
    refute_empty programs
    programs.each { |program| assert_includes program.scan(SAYS).map(&:first), "4.0", program }
  end

  # A library is surely there in the files about it.
  def test_no_file_asks_defined_of_a_part_of_a_library_that_may_be_missing
    files = Dir["#{ROOT}/{lib,odbc/lib,lab/lib}/**/*.rb"]
    asking = files.flat_map do |path|
      there = /\A(?:IO|RubyVM|Heddle|#{path.delete_prefix(ROOT).scan(/[a-z]+/).join("|")})\z/i
      File.read(path).scan(/defined\?\(:*([A-Z]\w*)::/).flatten.grep_v(there).map { |name| "#{path}: #{name}" }
    end
    assert_empty asking
  end

  def test_each_named_file_exists
    TEXT.scan(%r{`((?:test|lib)/[\w/.]+)`}).flatten.each { |path| assert_path_exists "#{ROOT}/#{path}" }
  end
end

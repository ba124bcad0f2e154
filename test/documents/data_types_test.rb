# frozen_string_literal: true

require "test_helper"

# The collector marks an object of a type without write barriers at each minor collection, and cannot move what it
# refers to. A type that lacks either says why, in a line above its table of functions.
class DataTypesTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  TYPE = /^(?:static )?const rb_data_type_t (?<name>\w+) = \{.*?^\};/m

  def test_each_type_has_write_barriers_and_can_be_compacted
    refute_empty types
    lacking = types.reject do |_, text|
      !text.include?(".dmark") ||
        (text.match?(/WB_PROTECTED|write barrier/) && text.match?(/\.dcompact|pinned/i))
    end
    assert_empty lacking.map(&:first)
  end

  private

  # The name, and the table with the comment above it.
  def types
    @types ||= Dir.glob("{ext,odbc/ext}/**/*.c", base: ROOT).flat_map do |file|
      text = File.read(File.join(ROOT, file))
      text.to_enum(:scan, TYPE).map do
        match = $~
        reason = match.pre_match.lines.reverse.take_while { |line| line.start_with?("//") }
        ["#{file}: #{match[:name]}", "#{reason.join}#{match}"]
      end
    end
  end
end

# frozen_string_literal: true

require "support/loop_helpers"

# Runs code with a collection at every allocation, or with a compaction at each: the GC must know every Ruby object
# that C code holds.
module Collections
  include LoopHelpers

  # The code calls `stress(level) { }`, and returns an Array of checks that are all true.
  PROGRAM = <<~RUBY
    GC.auto_compact = true if GC.respond_to?(:auto_compact=)
    def stress(level)
      GC.stress = level
      yield
    ensure
      GC.stress = false
    end
  RUBY
  private_constant :PROGRAM

  # Runs it in a task of its own process, whose heap is small.
  #
  # @param code [String] its value is an Array of nothing but true
  # @param env [Hash]
  def assert_right_under_collections(code, env)
    out = assert_child("#{PROGRAM}\np Heddle.run {\n#{code}\n}.uniq", env: env, timeout: 50)
    assert_equal "[true]\n", out
  end

  # The child runs without RubyGems, so that the path is passed to it (RUBYLIB).
  def bigdecimal = Gem::Specification.find_by_name("bigdecimal").full_require_paths.join(":")
end

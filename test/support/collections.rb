# frozen_string_literal: true

require "support/loop_helpers"

# Runs code with a collection at every allocation, or at every one that moves what may be moved: whatever C code holds of Ruby's must
# be known to it.
module Collections
  include LoopHelpers

  # `stress(level) { }` is the code's; it answers with what turned out right.
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

  # In a process of its own, whose heap is small, and in a task.
  #
  # @param code [String] its value is an Array, of nothing but true
  # @param env [Hash]
  def assert_right_under_collections(code, env)
    out = assert_child("#{PROGRAM}\np Heddle.run {\n#{code}\n}.uniq", env: env, timeout: 50)
    assert_equal "[true]\n", out
  end
end

# frozen_string_literal: true

# Ruby 4.0 warns that IO::Buffer is experimental when it passes the first buffer to a scheduler's hook, even in programs
# that never use IO::Buffer. Ruby prints this warning once per process: a buffer made with warnings off uses it up.
warns, Warning[:experimental] = Warning[:experimental], false
IO::Buffer.new(1).free
Warning[:experimental] = warns

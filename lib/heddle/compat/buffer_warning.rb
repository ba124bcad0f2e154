# frozen_string_literal: true

# Ruby 4.0 warns that IO::Buffer is experimental when it hands the first one to a scheduler's hook, in programs that never
# name IO::Buffer. Ruby gives this warning once a process: a buffer made without warnings uses it up.
warns, Warning[:experimental] = Warning[:experimental], false
IO::Buffer.new(1).free
Warning[:experimental] = warns

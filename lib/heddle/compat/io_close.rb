# frozen_string_literal: true

module Heddle
  module Compat
    # IO#close does not wake the fibers that wait for the IO, in any thread; they would hang, or wait for whatever gets the
    # number next (https://bugs.ruby-lang.org/issues/21166). Ruby 4.0 wakes them through the hook fiber_interrupt, but knows
    # of its own waits alone: a stream, and a socket in one of Heddle's methods, wait without it. The method is in C:
    # ext/heddle/scheduler/io_close.c. It also keeps the GVL while it closes a socket, where Ruby releases it: beside a thread
    # that computes that costs 100 ms. And in a trap handler it has a thread close the IO on Ruby 3.3 and 3.4, where Ruby raises
    # ThreadError if another thread waits for the IO, and that thread crashes.
    IO.prepend(IOClose)
  end
end

# frozen_string_literal: true

module Heddle
  module RubyFixes
    # IO#close, #close_read, #close_write and #reopen do not wake the fibers of any thread that wait for the IO. They
    # would hang, or wait for the next file with that number (https://bugs.ruby-lang.org/issues/21166). Ruby 4.0 wakes
    # them through the hook fiber_interrupt, but only from its own waits: not in a stream, nor in a socket method of
    # Heddle's. The replacement is in C: ext/heddle/scheduler/io_close.c. It also keeps the GVL while it closes a
    # socket; Ruby releases the GVL there, which costs 100 ms beside a CPU-bound thread. In a trap handler on Ruby 3.3
    # and 3.4 it closes the IO in a thread: there, if another thread waits for the IO, Ruby itself raises ThreadError,
    # and the other thread crashes.
    IO.prepend(IOClose)
  end
end

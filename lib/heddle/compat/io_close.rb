# frozen_string_literal: true

module Heddle
  module Compat
    # IO#close does not wake the fibers that wait for the IO, in any thread; they would hang, or wait for whatever gets the
    # number next (https://bugs.ruby-lang.org/issues/21166; Ruby 4.0 has the hook fiber_interrupt for it). The method is in C:
    # ext/heddle/loop/io_close.c. It also keeps Ruby's lock while it closes a socket, which Ruby gives up: beside a thread that
    # computes that costs 100 ms.
    IO.prepend(IOClose)
  end
end

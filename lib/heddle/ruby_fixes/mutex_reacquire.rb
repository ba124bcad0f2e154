# frozen_string_literal: true

require_relative "../core/native"

module Heddle
  module RubyFixes
    # Mutex#sleep and ConditionVariable#wait reacquire the Mutex without interrupts. Ruby raises a thread's pending
    # exceptions afterwards, but does not ask the scheduler: a deadline or a cancel would be raised only by the next
    # wait. The patch is in C (reacquire.c) for speed: each such wait calls it.
    module MutexReacquire
      Thread::Mutex.prepend(Reacquire)
      # Up to Ruby 3.4 this method calls Mutex#sleep.
      Thread::ConditionVariable.prepend(Reacquire::Condition) if RUBY_VERSION >= "4.0"
    end
  end
end

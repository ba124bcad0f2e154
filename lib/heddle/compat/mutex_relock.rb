# frozen_string_literal: true

require_relative "../native"

module Heddle
  module Compat
    # Mutex#sleep and ConditionVariable#wait take the Mutex again without being interrupted. What is raised in a thread
    # meanwhile Ruby raises once that is done, but it asks no scheduler: a deadline or a cancel would come at the next wait
    # only. In C (relock.c), for it is called at each such wait.
    module MutexRelock
      Thread::Mutex.prepend(Relock)
      # Calls Mutex#sleep up to Ruby 3.4.
      Thread::ConditionVariable.prepend(Relock::Condition) if RUBY_VERSION >= "4.0"
    end
  end
end

# frozen_string_literal: true

# Works around defects of the running Ruby under a fiber scheduler: one file for each defect, loaded only on Rubies that
# have the defect.
#
# Each patch changes only code that runs under a Heddle::Scheduler. A test shows each defect with the patches off
# (HEDDLE_COMPAT=off).
module Heddle
  # Has a module for each defect, in a file of its own.
  #
  # @api private
  module Compat; end
end

unless ENV["HEDDLE_COMPAT"] == "off"
  if RUBY_VERSION < "3.2"
    require_relative "compat/buffer_pwrite"
    require_relative "compat/io_select"
    require_relative "compat/kernel_select"
  end
  require_relative "compat/thread_join" if RUBY_VERSION < "3.3"
  require_relative "compat/mutex_sleep" if (RUBY_VERSION.split(".").map(&:to_i) <=> [3, 3, 8]) < 0
  require_relative "compat/mutex_reacquire"
  require_relative "compat/thread_pass"
  if RUBY_VERSION < "4.0"
    require_relative "compat/fork"
  else
    require_relative "compat/buffer_warning"
  end
  require_relative "compat/abandoned_waiters"
  require_relative "compat/io_close"
  if defined?(::Timeout::VERSION) && (::Timeout::VERSION.split(".").map(&:to_i) <=> [0, 4, 3]) < 0
    require_relative "compat/timeout_class"
  end
  require_relative "compat/sysread"
  require_relative "compat/fiber_raise"
  require_relative "compat/fiber_kill" if (RUBY_VERSION.split(".").map(&:to_i) <=> [3, 3]) >= 0
  require_relative "compat/interrupt_proxy" if (RUBY_VERSION.split(".").map(&:to_i) <=> [4, 1]) >= 0
  require_relative "compat/fiber_transfer"
  require_relative "compat/connect"
  require_relative "compat/address_names"
  require_relative "compat/look_ups"
end

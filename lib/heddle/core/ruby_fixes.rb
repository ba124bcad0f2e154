# frozen_string_literal: true

# Works around defects of the running Ruby under a fiber scheduler: one file for each defect, loaded only on Rubies that
# have the defect.
#
# Each patch changes only code that runs under a Heddle::Scheduler. A test shows each defect with the patches off
# (HEDDLE_RUBY_FIXES=off), which also leaves look-ups and connects to Ruby (resolver/).
module Heddle
  # Has a module for each defect, in a file of its own.
  #
  # @api private
  module RubyFixes; end
end

unless ENV["HEDDLE_RUBY_FIXES"] == "off"
  if RUBY_VERSION < "3.2"
    require_relative "../ruby_fixes/buffer_pwrite"
    require_relative "../ruby_fixes/io_select"
    require_relative "../ruby_fixes/kernel_select"
  end
  require_relative "../ruby_fixes/thread_join" if RUBY_VERSION < "3.3"
  require_relative "../ruby_fixes/mutex_sleep" if (RUBY_VERSION.split(".").map(&:to_i) <=> [3, 3, 8]) < 0
  require_relative "../ruby_fixes/mutex_reacquire"
  require_relative "../ruby_fixes/thread_pass"
  if RUBY_VERSION < "4.0"
    require_relative "../ruby_fixes/fork"
  else
    require_relative "../ruby_fixes/buffer_warning"
  end
  require_relative "../ruby_fixes/abandoned_waiters"
  require_relative "../ruby_fixes/io_close"
  if Object.const_defined?("Timeout::VERSION") && (::Timeout::VERSION.split(".").map(&:to_i) <=> [0, 4, 3]) < 0
    require_relative "../ruby_fixes/timeout_class"
  end
  require_relative "../ruby_fixes/sysread"
  require_relative "../ruby_fixes/fiber_raise"
  require_relative "../ruby_fixes/fiber_kill" if (RUBY_VERSION.split(".").map(&:to_i) <=> [3, 3]) >= 0
  require_relative "../ruby_fixes/interrupt_proxy" if (RUBY_VERSION.split(".").map(&:to_i) <=> [4, 1]) >= 0
  require_relative "../ruby_fixes/fiber_transfer"
  require_relative "../resolver/connect"
  require_relative "../resolver/address_names"
  require_relative "../resolver/look_ups"
end

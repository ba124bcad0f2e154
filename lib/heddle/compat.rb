# frozen_string_literal: true

# Mends what the running Ruby gets wrong under a fiber scheduler: a file a defect, loaded only where the defect is.
#
# Each patch asks whether a Heddle::Scheduler is in charge and otherwise leaves Ruby's own way; a test shows each defect
# with the patch off (HEDDLE_COMPAT=off).
module Heddle
  # @api private Named for Ruby's defects, one a file.
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
  require_relative "compat/mutex_relock"
  require_relative "compat/thread_pass"
  if RUBY_VERSION < "4.0"
    require_relative "compat/fork"
  else
    require_relative "compat/buffer_warning"
  end
  require_relative "compat/abandoned_waiters"
  require_relative "compat/io_close"
  require_relative "compat/timeout_class" if defined?(::Timeout::VERSION) && (::Timeout::VERSION.split(".").map(&:to_i) <=> [0, 4, 3]) < 0
  require_relative "compat/sysread"
  require_relative "compat/fiber_raise"
  require_relative "compat/fiber_kill" if (RUBY_VERSION.split(".").map(&:to_i) <=> [3, 3]) >= 0
  require_relative "compat/fiber_transfer"
  require_relative "compat/connect"
  require_relative "compat/address_names"
  require_relative "compat/service_names"
end

# frozen_string_literal: true

require "socket" # the loop raises SocketError
require_relative "version"
require_relative "clock"
require_relative "errors"
require_relative "native"
require_relative "loop"
require_relative "compat"
require_relative "connect_filter"
require_relative "after_fork"
require_relative "dump"
require_relative "loading"

Heddle::AfterFork.register do
  Heddle::Scheduler.leave_parent
  Heddle.keep_deadlines # the helper thread for the deadlines of plain threads is the parent's
end

# frozen_string_literal: true

# Each capsule runs its jobs on as many fibers as it would have threads.
require "active_support"
require "active_support/isolated_execution_state"
require "heddle/sidekiq"

ActiveSupport::IsolatedExecutionState.isolation_level = :fiber

Sidekiq::Capsule.prepend(Module.new do
  def initialize(...)
    super
    heddle(fibers: concurrency, stall: nil)
  end
end)

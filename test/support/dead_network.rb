# frozen_string_literal: true

require "heddle/lab/dead_network"

# For tests that run a program where no server answers and names are slow; see the lab's file of that name.
module DeadNetworkHelpers
  # Makes a network of the test's own, or skips with the reason.
  def dead_network(**options)
    reason = Heddle::Lab::DeadNetwork.unavailable
    skip "no network of our own: #{reason}" if reason

    Heddle::Lab::DeadNetwork.new(**options)
  end
end

# frozen_string_literal: true

require "heddle/lab/dead_network"

# For tests that run a program where nobody answers and names are slow; see the lab's file of that name.
module DeadNetworkHelpers
  # A network of its own, or a skip that says why there can be none.
  def dead_network(**options)
    reason = Heddle::Lab::DeadNetwork.unavailable
    skip "no network of our own: #{reason}" if reason

    Heddle::Lab::DeadNetwork.new(**options)
  end
end

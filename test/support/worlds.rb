# frozen_string_literal: true

require "heddle/simulation"

# Runs simulated worlds, and keeps what they print in @said.
module Worlds
  def run_world(seeds: [1], **options, &block)
    digest = nil
    _, @said = capture_io { digest = Heddle::Simulation.run(seeds: seeds, **options, &block) }
    digest
  end

  def fails(kind, **options, &block)
    error = nil
    _, @said = capture_io do
      error = assert_raises(kind) { Heddle::Simulation.run(seeds: [7], **options, &block) }
    end
    error
  end
end

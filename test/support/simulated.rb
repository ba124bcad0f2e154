# frozen_string_literal: true

require "heddle/simulation"

# Models of parts of the library in simulated worlds. Seeds change each day; SIMULATION_SEED takes the place of the
# first one, and SIMULATION_RUNS multiplies how many there are.
module Simulated
  FIRST = Integer(ENV.fetch("SIMULATION_SEED") { Time.now.strftime("%Y%m%d000") })
  TIMES = Integer(ENV.fetch("SIMULATION_RUNS", "1"))

  # Calls the block for this many seeds. A line on stderr says which one failed.
  def simulate(count, **options, &block)
    Heddle::Simulation.run(seeds: (FIRST...FIRST + (count * TIMES)), **options, &block)
  end

  # A link that loses, delays and resets more or less.
  def bad_link(world)
    {latency: 0.001..world.draw(0.002..0.5), loss: world.draw(0.0..0.05), reset: world.draw(0.0..0.03),
     stall: world.draw(0.0..0.002),
     bandwidth: (world.draw < 0.3) ? world.draw(20_000..2_000_000) : nil}
  end
end

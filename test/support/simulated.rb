# frozen_string_literal: true

require "heddle/simulation"

# Models of parts of the library in simulated worlds. Seeds change each day; SIMULATION_SEED takes the place of the
# first one, and SIMULATION_RUNS multiplies how many there are: by default a third of what a model asks for, since
# `rake test:simulation` runs all models for a minute, as bin/test --all does.
module Simulated
  FIRST = Integer(ENV.fetch("SIMULATION_SEED") { Time.now.strftime("%Y%m%d000") })
  TIMES = Float(ENV.fetch("SIMULATION_RUNS", "0.34"))

  def self.included(test)
    test.hard_deadline(60 * [TIMES, 1].max)
  end

  # Calls the block for this many seeds. A line on stderr says which one failed.
  def simulate(count, **options, &block)
    Heddle::Simulation.run(seeds: (FIRST...FIRST + (count * TIMES).ceil), **options, &block)
  end

  # A link that loses, delays and resets more or less.
  def bad_link(world)
    {latency: 0.001..world.draw(0.002..0.5), loss: world.draw(0.0..0.05), reset: world.draw(0.0..0.03),
     stall: world.draw(0.0..0.002),
     bandwidth: (world.draw < 0.3) ? world.draw(20_000..2_000_000) : nil}
  end

  # A span of time. With every other seed it is a multiple of a tenth of a second, so that much happens at once.
  #
  # @return [Float] seconds
  def span(world, range)
    seconds = world.draw(range)
    world.seed.even? ? seconds.round(1) : seconds
  end

  # Runs the block in tasks that are cancelled, and run out of time, at any moment.
  #
  # @return [Integer] how many were ended
  def among_interruptions(world, count, deadlines: true, &block)
    tasks = Array.new(count) { |number| Heddle.spawn { until_it_is_late(world, number, deadlines, &block) } }
    interrupter = Heddle.spawn { interrupt(world, tasks) }
    tasks.each(&:wait)
    interrupter.cancel
    tasks.count { |task| task.status == :cancelled || task.value == :late }
  end

  private

  # With every third seed at switches: between what wakes a task and its next step.
  def interrupt(world, tasks)
    if (world.seed % 3).zero?
      world.at_switches(0.02) { tasks.sample(random: world.random).cancel }
      world.at_switches(0.001) { GC.start }
    else
      loop do
        sleep(span(world, 0.0..1.5))
        tasks.sample(random: world.random).cancel
      end
    end
  end

  def until_it_is_late(world, number, deadlines)
    sleep(span(world, 0.0..2.0))
    Heddle.deadline(deadlines ? span(world, 0.05..4.0) : nil) { yield number }
  rescue Heddle::DeadlineExceeded
    :late
  end
end

# frozen_string_literal: true

# How many times slower than a usual machine this one is: HEDDLE_TEST_SLOWNESS, 1 by default, 8 under an emulator. Every
# limit in seconds of a test, of a test file and of a step of bin/test is stretched by it here. What Heddle promises is
# not: a deadline of 0.1 s may come late on a slow machine, and never before 0.1 s.
module Slowness
  # @raise [ArgumentError] for what is no number from 1 on
  # @return [Float]
  def self.read(text)
    factor = Float(text, exception: false)
    return factor if factor&.between?(1, 1000)

    raise ArgumentError,
      "HEDDLE_TEST_SLOWNESS is #{text.inspect}: give a number from 1 to 1000, such as 8 for an emulator"
  end

  FACTOR = read(ENV.fetch("HEDDLE_TEST_SLOWNESS", "1"))

  def self.stretch(seconds) = seconds * FACTOR
end

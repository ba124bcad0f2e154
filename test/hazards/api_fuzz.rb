# frozen_string_literal: true

# Random sequences of the public API, in threads that are killed and interrupted:
#
#   SEED=7 SECONDS=60 script/with-ruby 3.4 bundle exec ruby -Ilib test/hazards/api_fuzz.rb
#
# The work is a sequence of rounds. A round starts tasks and threads ("actors") that run operations, each of which
# checks its own result. The round and the actor alone determine them, so SEED=7 ROUND=12 repeats round 12 of seed 7.
# The machine determines which actors meet, and when.
#
# Whatever happens: no crash; each round ends; no wait lasts two seconds longer than its cause; no value is lost or
# comes twice; no exception is raised outside of its scope; all tasks have ended when their run has; the exit status
# of a child is its own; at the end neither descriptors nor threads are left. The exit status tells whether all of
# that held: 0 or 1.
#
# SEED, SECONDS (20), ROUND, ONLY=deadline,offload (operations), OFFSET (of the first round), VERBOSE=1 (each round).

require_relative "../support/api_fuzz/supervisor"

unless ENV["API_FUZZ_CHILD"]
  seconds = Float(ENV.fetch("SECONDS", 20))
  exit ApiFuzz::Supervisor.new(__FILE__, seconds: seconds, patience: 60).run
end

require_relative "../support/api_fuzz/session"

exit ApiFuzz::Session.new(
  seed: Integer(ENV.fetch("SEED", Random.new_seed % 100_000)),
  seconds: Float(ENV.fetch("SECONDS", 20)),
  round: ENV["ROUND"] && Integer(ENV["ROUND"]),
  first: Integer(ENV.fetch("OFFSET", 0)),
  only: ENV["ONLY"]&.split(",")
).run

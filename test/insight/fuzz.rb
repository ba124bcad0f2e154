# frozen_string_literal: true

# ps, why, tree, stalls, metrics and traces, started and stopped at random, in processes that misbehave at random:
#
#   SEED=7 RUNS=100 script/with-ruby 4.0 bundle exec ruby -Ilib test/insight/fuzz.rb
#
# Each run is a process with a seed of its own, which its tasks and threads share: some compute, some wait, some watch
# and trace, some raise errors in other threads, kill them, send signals, fork, start Ractors, collect and compact the
# heap. Other threads ask over the socket meanwhile, also what makes no sense. The seed chooses which of these take part
# and how the process ends. SEED=12 repeats run 12; the machine determines what meets, and when.
#
# Whatever happens: no crash; each process ends in time, as the seed says, and so do its children; each answer is
# complete and consistent; no counter falls; each trace that ended is JSON; no socket is left. The exit status tells
# whether all of that held: 0 or 1.
#
# SEED, RUNS (10), SECONDS (3, of each run), WITH=forks,kills (these parts alone), WITHOUT=ractors, VERBOSE=1.

if ENV["INSIGHT_FUZZ_SEED"]
  require_relative "../support/insight_fuzz/subject"

  InsightFuzz::Subject.new(Integer(ENV["INSIGHT_FUZZ_SEED"]), Float(ENV["SECONDS"]), ENV["INSIGHT_FUZZ_FOLDER"]).run
else
  require_relative "../support/insight_fuzz/session"

  exit InsightFuzz::Session.new(
    __FILE__,
    seed: Integer(ENV.fetch("SEED", Random.new_seed % 100_000)),
    runs: Integer(ENV.fetch("RUNS", 10)),
    seconds: Float(ENV.fetch("SECONDS", 3))
  ).run
end

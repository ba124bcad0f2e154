# frozen_string_literal: true

# Random sequences of operations with the clients, among cancels, interrupts, forks and failing servers:
#
#   SEED=7 SECONDS=60 script/with-ruby 3.4 bundle exec ruby -Ilib test/hazards/client_fuzz.rb
#
# The clients are Heddle::DB, Heddle::Memcached, the accelerated Net::HTTP, and the gems pg, mysql2, trilogy, sqlite3,
# ActiveRecord and Sequel (ONLY=gem). The work is a sequence of rounds. In a round, tasks and threads ("actors") share
# the clients. Proxies between the clients and their servers cut, reset, stall or delay connections.
#
# Whatever happens: no crash; each answer carries the token of its question; each operation ends within two seconds
# of its deadline; each error has a cause; at the end of a round each pool is full and lends connections that work, and
# no server has more connections than the pools; at the end the process has no more descriptors than after the first
# rounds. The exit status tells whether all of that held: 0 or 1.
#
# SEED, SECONDS (20), ONLY=db,http_get (beginnings of the operations' names), CALM=1 (proxies pass everything),
# RESTARTS=1 (memcached is killed and started again), VERBOSE=1 (each round).

require_relative "../support/api_fuzz/supervisor"

unless ENV["API_FUZZ_CHILD"]
  exit ApiFuzz::Supervisor.new(__FILE__, seconds: Float(ENV.fetch("SECONDS", 20)), patience: 90).run
end

require_relative "../support/client_fuzz/session"

exit ClientFuzz::Session.new(
  seed: Integer(ENV.fetch("SEED", Random.new_seed % 100_000)),
  seconds: Float(ENV.fetch("SECONDS", 20)),
  only: ENV["ONLY"]&.split(","),
  calm: ENV.key?("CALM"),
  restarts: ENV.key?("RESTARTS")
).run

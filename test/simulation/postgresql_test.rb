# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "support/pool_model"
require "support/pool_sharing"
require "support/simulated_postgresql"
require "heddle/db/postgresql" # before the first world: what is loaded within one moves the rest of it

runs_on rubies: :ends

# A pool of connections to PostgreSQL, whose users are cancelled, run out of time and lose their server at any moment.
class SimulatedPostgreSQLTest < Minitest::Test
  include Simulated

  def test_a_pool_among_interruptions
    ended = Hash.new(0)
    simulate(150) do |world|
      stall = (world.draw < 0.5) ? 0.0 : world.draw(0.0..0.002)
      server = SimulatedPostgreSQL.new(world, refusals: world.draw(0.0..0.25), slow: world.draw(0.0..0.2),
        crashes: world.draw(0.0..0.01))
      Model.new(world, server, 5432, **bad_link(world), stall: stall).run.each { |how, count| ended[how] += count }
    end
    warn ended if ENV["SHOW"]
    assert_operator ended[:done], :>, ended.values.sum / 4 # the world is bad, but not that bad
    assert_empty %i[cancelled ConnectionLost DeadlineExceeded SerializationFailure ours] - ended.keys
  end

  def test_statements_that_share_connections
    ended = Hash.new(0)
    simulate(150) do |world|
      stall = (world.draw < 0.5) ? 0.0 : world.draw(0.0..0.002)
      server = SimulatedPostgreSQL.new(world, refusals: world.draw(0.0..0.25), slow: world.draw(0.0..0.2),
        crashes: world.draw(0.0..0.01))
      Sharing.new(world, server, 5432, **bad_link(world), stall: stall).run.each { |how, count| ended[how] += count }
    end
    warn ended if ENV["SHOW"]
    assert_operator ended[:done], :>, ended.values.sum / 4
    assert_empty %i[cancelled ConnectionLost DeadlineExceeded SerializationFailure] - ended.keys
  end

  # What PostgreSQL has more than others.
  class Model < PoolModel
    URL = "postgresql://me:secret@db.example/base"
    OPERATIONS = (superclass::OPERATIONS + %i[atomic_pipeline copy_in copy_out listen]).freeze

    private

    def atomic_pipeline(db, user)
      attempt(user, draw(1..4)) do |attempt|
        db.pipeline(atomic: true) do |pipeline|
          attempt.texts.each { |text| pipeline.query(INSERT, text) }
          attempt.decide
        end
      end
    end

    def copy_in(db, user)
      attempt(user, draw(1..5)) do |attempt|
        rows = db.copy_in("copy t (id) from stdin") do |copy|
          attempt.texts.each do |text|
            copy << [text]
            sleep(draw(0.0..0.3)) if draw < 0.2
            raise OURS if draw < 0.05
          end
          attempt.decide
        end
        equal(attempt.texts.size, rows)
      end
    end

    def copy_out(db, user)
      whole = draw < 0.9
      @interrupted[user] = true unless whole
      seen = []
      rows = db.copy_out("copy many to stdout") do |row|
        seen << row
        break if !whole && draw < 0.2
      end
      equal(Array.new(seen.size) { |n| ["#{user}-#{n}"] }, seen)
      equal(SimulatedDatabase::MANY * 2, seen.size) if rows
      equal(seen.size, rows) if rows
    end

    # The server's answers between its own are the session's notifications.
    def listen(db, user)
      db.listen("c#{user}")
      texts = Array.new(draw(1..4)) { text(user).tap { |text| db.notify("c#{user}", text) } }
      got = texts.map { db.wait_for_notification(5) || break }
      equal(texts.map { |text| ["c#{user}", text] }, got.map { |one| [one.channel, one.payload] }) if got
    end
  end

  class Sharing < Model
    include PoolSharing
  end
end

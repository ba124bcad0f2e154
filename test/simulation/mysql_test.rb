# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "support/pool_model"
require "support/pool_sharing"
require "support/simulated_mysql"
require "heddle/db/mysql" # before the first world: what is loaded within one moves the rest of it

runs_on rubies: :ends

# A pool of connections to MySQL, whose users are cancelled, run out of time and lose their server at any moment.
class SimulatedMySQLTest < Minitest::Test
  include Simulated

  def test_a_pool_among_interruptions
    ended = Hash.new(0)
    simulate(120) do |world|
      stall = (world.draw < 0.5) ? 0.0 : world.draw(0.0..0.002)
      server = SimulatedMySQL.new(world, refusals: world.draw(0.0..0.25), slow: world.draw(0.0..0.2),
        crashes: world.draw(0.0..0.01))
      Model.new(world, server, 3306, **bad_link(world), stall: stall).run.each { |how, count| ended[how] += count }
    end
    warn ended if ENV["SHOW"]
    assert_operator ended[:done], :>, ended.values.sum / 6 # the world is bad, but not that bad
    assert_empty %i[cancelled ConnectionLost DeadlineExceeded DeadlockDetected ours] - ended.keys
  end

  def test_statements_that_share_connections
    ended = Hash.new(0)
    simulate(150) do |world|
      stall = (world.draw < 0.5) ? 0.0 : world.draw(0.0..0.002)
      server = SimulatedMySQL.new(world, mariadb: true, full: world.draw(0.0..0.02), refusals: world.draw(0.0..0.25),
        slow: world.draw(0.0..0.2), crashes: world.draw(0.0..0.01))
      Sharing.new(world, server, 3306, **bad_link(world), stall: stall).run.each { |how, count| ended[how] += count }
    end
    warn ended if ENV["SHOW"]
    assert_operator ended[:done], :>, ended.values.sum / 6
    assert_empty %i[cancelled ConnectionLost DeadlineExceeded DeadlockDetected] - ended.keys
  end

  # What is MySQL's own.
  class Model < PoolModel
    URL = "mysql://me:secret@db.example/base"
    SET = "set @s = '%s'"
    SHOW = "select @s"
  end

  class Sharing < Model
    include PoolSharing
  end
end

# frozen_string_literal: true

require_relative "pool_model"

# Of a {PoolModel}: statements of one pool that are in flight together, each with a user of its own, among users who
# have a connection.
module PoolSharing
  USERS = 30

  private

  def pool_options = {multiplex: draw(2..6)}

  def lent
    (draw < 0.3) ? super : draw(1..8).times { statement }
  end

  def statement
    user = (@users += 1)
    send(one_of(%i[echo echo insert in_little_time]), @pool, user)
  rescue *PoolModel::INTERRUPTS
    @interrupted[user] = true
    raise
  end

  # Then interruptions alone: who is not interrupted gets every answer.
  def come_back
    super
    @world.link("db.example", latency: 0.001..0.05)
    tasks = Array.new(12) { Heddle.spawn { Heddle.deadline(600) { 5.times { hasty_echo } } } }
    @world.at_switches(0.002) { one_of(tasks).cancel }
    tasks.each(&:wait)
    tasks.each { |task| task.value unless task.status == :cancelled }
    @world.link("db.example")
    super
  end

  def hasty_echo
    user = (@users += 1)
    (draw < 0.3) ? Heddle.deadline(draw(0.0..0.2)) { echo(@pool, user) } : echo(@pool, user)
  rescue Heddle::DeadlineExceeded
    @interrupted[user] = true
    raise if Heddle.remaining.zero?
  end

  def in_little_time(pool, user)
    in_time(user) { send(one_of(%i[echo insert]), pool, user) }
  end
end

# frozen_string_literal: true

require "test_helper"
require "heddle"
require "support/wait_stress"

# Tasks and threads hand work to each other through each of Ruby's means, through ActiveRecord's connection pool and
# Heddle's own pools, some of them interrupted by deadlines and cancels: no wake-up is lost.
#
# HEDDLE_STRESS: how many seconds each test runs (0.1); minutes find more. HEDDLE_STRESS_SEED: as a failure printed
# it.
class WakeUpsTest < Minitest::Test
  mode :fiber

  SECONDS = Float(ENV.fetch("HEDDLE_STRESS", "0.1"))
  SEED = Integer(ENV.fetch("HEDDLE_STRESS_SEED") { rand(100_000) })

  hard_deadline SECONDS + 60

  {
    mutex: WaitStress::MutexContended,
    mutex_sleep: WaitStress::MutexSleepContended,
    condition: WaitStress::ConditionContended,
    condition_with_a_state: WaitStress::ConditionWithAStateContended,
    monitor: WaitStress::MonitorContended,
    queue: WaitStress::QueueContended,
    sized_queue: WaitStress::SizedQueueContended,
    join: WaitStress::JoinContended,
    fiber_pool: WaitStress::FiberPoolContended,
    own_fiber_pool: WaitStress::OwnFiberPoolContended,
    active_record: WaitStress::ActiveRecordContended,
    database_pool: WaitStress::DatabasePoolContended,
    memcached: WaitStress::MemcachedContended,
    mixed: WaitStress::MixedContended
  }.each do |name, contended|
    [nil, WaitStress::Wide].each do |scheduler|
      suffix = "_in_wide_gaps" if scheduler
      define_method("test_#{name}#{suffix}") { stress(contended, scheduler: scheduler) }
      define_method("test_#{name}_under_deadlines_and_cancels#{suffix}") do
        stress(contended, scheduler: scheduler, interrupted: true)
      end
    end
  end

  private

  def stress(contended, **options)
    stress = WaitStress.new(contended, seconds: SECONDS, seed: SEED, **options)
    lost = stress.run
    assert_empty lost, "who has waited without cause, with HEDDLE_STRESS_SEED=#{SEED}:\n#{lost.join("\n")}"
    assert_operator stress.waits, :>, 0, "nothing happened"
    return unless ENV.key?("HEDDLE_STRESS")

    puts "#{name} on Ruby #{RUBY_VERSION}, #{backend}: #{stress.waits} waits in #{SECONDS} s"
  end
end

# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on rubies: :ends, backends: :one

class ManySleepersTest < Minitest::Test
  include LoopHelpers

  # In a process of its own: the memory of its stacks and its many maps end with it.
  def test_thirty_thousand_fibers_sleeping
    maps = File.read("/proc/sys/vm/max_map_count").to_i
    skip "vm.max_map_count is #{maps}: no room for 30 000 fibers of two maps each" if maps < 62_000

    assert_equal "30000 30000 0\n", assert_child(<<~'RUBY')
      woken = 0
      most = Heddle.run do
        tasks = Array.new(30_000) { Heddle.spawn { sleep(1e6); woken += 1 } }
        most = tasks.count { |task| task.status == :waiting }
        tasks.each(&:cancel)
        most
      end
      sleepers = Heddle.run do
        Array.new(30_000) { |i| Heddle.spawn { sleep(0.001 * (i % 100)); woken += 1 } }
        Fiber.scheduler
      end
      puts "#{most} #{woken} #{sleepers.statistics[:timers]}"
    RUBY
  end
end

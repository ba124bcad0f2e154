# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on also: %i[yjit]

# Each way to interrupt at each moment of a task's life. The run ends with the interrupt's error, every `ensure` has run
# once, nothing is left in the loop, and the next run works.
class EveryMomentTest < Minitest::Test
  include LoopHelpers

  MOMENTS = <<~RUBY
    require "timeout"
    class Interrupted < StandardError; end
    Thread.report_on_exception = false

    # So long that what another thread raises, or a signal, arrives in it.
    def burn(seconds = 0.008)
      from = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      Thread.pass while Process.clock_gettime(Process::CLOCK_MONOTONIC) - from < seconds
      true
    end

    # In which the interrupt lands. The victim is a fresh fiber's first task, but in `reused`.
    MOMENTS = {
      starting: -> { victim { interrupt && sleep } },
      reused: -> { Heddle.spawn { sleep(0) }.wait && victim { interrupt && sleep } },
      nested: -> { victim { Fiber.new(blocking: false) { interrupt && sleep }.resume } },
      nested_and_waiting: -> {
        task = victim { Fiber.new(blocking: false) { ($fiber = Fiber.current) && sleep }.resume }
        task.tap { interrupt(task) }
      },
      waiting: -> { victim { sleep }.tap { |task| interrupt(task) } },
      ready: -> {
        Thread::Queue.new.then { |queue| victim { queue.pop && sleep }.tap { |task| (queue << 1) && interrupt(task) } }
      },
      ensuring: -> { victim { begin; raise IOError; rescue IOError; ensure; interrupt && sleep; end } },
      ending: -> { victim { sleep(0.001) && interrupt } },
      polling: lambda do
        main = Thread.current
        task = victim { sleep }
        Thread.new { (sleep(0.001) until main.stop?) || interrupt(task, main) }
        task
      end
    }

    def victim(&block)
      Heddle.spawn do
        $fiber = Fiber.current
        WRAP.call(block)
      ensure
        $ensured << :victim
      end
    end

    def bystanders(reader)
      waits = {
        sleep: -> { sleep },
        read: -> { reader.readpartial(1) },
        pop: -> { Thread::Queue.new.pop },
        nested: -> { Fiber.new { sleep }.resume }
      }
      waits.map do |name, wait|
        Heddle.spawn do
          wait.call
        ensure
          begin
            sleep(0.001) # what interrupts now ends that, too
          ensure
            $ensured << name
          end
        end
      end
    end

    def outcome
      yield
    rescue Exception => error
      error.is_a?(Heddle::TaskCancelled) ? "cancelled" : error.class
    end

    def tried(moment)
      reader, = UNIXSocket.pair
      Heddle.run do
        $scheduler = Fiber.scheduler
        others = bystanders(reader)
        MOMENTS.fetch(moment).call.value
        others.each(&:cancel)
        "done"
      end
    end

    MOMENTS.each_key do |moment|
      $ensured = []
      result = THREAD ? Thread.new { tried(moment) }.then { |thread| outcome { thread.value || "killed" } } : outcome {
        tried(moment)
      }
      again =
        Heddle.run { Heddle.spawn { sleep(0.001) && Fiber.scheduler.statistics.values_at(:tasks, :timers) }.value }
      puts [moment, result, $ensured.sort.join(","), again.join(",")].join(" ")
    end
  RUBY

  # How the victim's block is called, what interrupts (`task` is nil where the victim interrupts itself), the run's
  # outcome, and where the outcome may differ: a limit that passes after the last wait ends nothing (doc/adr/0004…), but
  # on a busy machine it may pass before.
  WAYS = {
    "cancel" => ["block.call", "(task || Heddle::Task.current).cancel", "cancelled"],
    "fiber_raise" => ["block.call",
      "thread ? $scheduler.fiber_interrupt($fiber, Interrupted.new) : " \
      "(task ? $fiber.raise(Interrupted) : raise(Interrupted))",
      "Interrupted"],
    "timeout" => ["Timeout.timeout(0.02, Interrupted, &block)", "thread || burn(0.03)", "Interrupted",
      {ending: "done"}],
    "deadline" => ["Heddle.deadline(0.02, &block)", "thread || burn(0.03)", "Heddle::DeadlineExceeded",
      {ending: "done"}],
    "thread_raise" => ["block.call",
      "(thread || Thread.current).then { |it| Thread.new { it.raise(Interrupted) } } && burn", "Interrupted"],
    "thread_kill" => ["block.call", "(thread || Thread.current).then { |it| Thread.new { it.kill } } && burn",
      "killed"],
    "exit" => ["block.call", "exit(7)", "SystemExit"],
    "abort" => ["block.call", "abort", "SystemExit"],
    "sigint" => ["block.call", "Process.kill(:INT, $$) && burn", "Interrupt"],
    "sigterm" => ["block.call", "Process.kill(:TERM, $$) && burn", "SignalException"]
  }.freeze

  WAYS.each do |name, (wrap, interrupt, expected, others)|
    define_method("test_#{name}") do
      out = assert_child(<<~RUBY)
        WRAP = ->(block) { #{wrap} }
        THREAD = #{name.start_with?("thread")}
        def interrupt(task = nil, thread = nil) = (#{interrupt})
        #{MOMENTS}
      RUBY
      seen = out.lines(chomp: true).to_h { |line| line.split(" ", 2) }
      assert_equal 9, seen.size
      seen.each do |moment, line|
        result, ensured, left = line.split
        assert_includes [expected, *others&.fetch(moment.to_sym, nil)], result, moment
        assert_equal ["nested,pop,read,sleep,victim", "2,0"], [ensured, left], moment
      end
    end
  end
end

# frozen_string_literal: true

require "heddle"
require_relative "children"
require_relative "judge"
require_relative "load"
require_relative "observers"
require_relative "plan"

module InsightFuzz
  # The process of one seed.
  class Subject
    include Heddle::Clock

    JOIN = 20 # seconds
    SIGNALS = %i[URG WINCH USR1 HUP].freeze
    private_constant :JOIN, :SIGNALS

    def initialize(seed, seconds, folder)
      @plan = Plan.new(seed)
      @random = @plan.random
      @seconds = seconds
      @observers = Observers.new(folder, toggles: @plan.include?(:toggles), prometheus: @plan.include?(:prometheus))
      @children = Children.new(@observers) { |random, limit| load(random, limit) }
      @threads = []
      @targets = []
      @checked = {}
    end

    def run
      trap("USR2") { tell_places }
      prepare
      @limit = now + @seconds
      start_threads
      start_end
      main
      finish
    end

    private

    # Asked by the supervisor of a process that is late.
    def tell_places
      Thread.list.each { |thread| $stderr.syswrite("#{thread.inspect}\n  #{thread.backtrace&.join("\n  ")}\n") }
    end

    def prepare
      if @plan.include?(:prometheus)
        require "prometheus/client"
        require "prometheus/client/formats/text"
        require "heddle/prometheus"
        Heddle::PrometheusSupport.register
      end
      Heddle.insight if @plan.include?(:insight)
      trap_signals if @plan.include?(:signals)
    end

    def trap_signals
      random = Random.new(@random.seed + 1)
      trap("USR1") { raise Disturbance, "of a handler" if @open && !@ends && random.rand < 0.3 }
      trap("HUP") { @children.make(random, "handler") if @plan.include?(:forks) && random.rand < 0.5 }
      trap("URG") {}
      trap("WINCH") {}
    end

    # ---- the threads

    def start_threads
      @random.rand(4).times { |index| @targets << start("loop #{index}") { |random| round(random) } }
      2.times { |index| @targets << start("observer #{index}") { |random| observe(random) } }
      disturbances.each { |part, method| start(part.to_s) { |random| send(method, random) } if @plan.include?(part) }
      start("metrics") { |random| check_metrics(random) }
      start("deadline") { |random| pass_deadline(random) }
    end

    def disturbances
      {traces: :trace, watches: :watch, gc: :collect, stress: :stress, forks: :make_child, signals: :signal,
       kills: :disturb, ractors: :start_ractor}
    end

    # Calls the block again and again, whatever is raised in it.
    def start(name)
      random = Random.new(@random.rand(1 << 30))
      thread = Thread.new do
        Judge.contained(name) { yield(random) } while now < @limit
      rescue Disturbance
        retry # it came between two calls
      end
      thread.name = name
      thread.report_on_exception = false
      @threads << thread
      thread
    end

    def load(random, limit)
      seldom = @observers.all
      seldom += [->(chance) { @children.make(chance, "task") if chance.rand < 0.2 }] if @plan.include?(:forks)
      Heddle.run { Load.new(seldom).work(random, limit) }
    end

    def round(random) = load(random, [now + (random.rand * 0.8), @limit].min)

    def observe(random)
      @observers.all.sample(random: random).call(random)
      sleep(random.rand * 0.02)
    end

    def trace(random)
      @observers.trace(random) { sleep(random.rand * 0.5) }
      sleep(random.rand * 0.1)
    end

    def watch(random) = @observers.watch(random, [0.01, 0.02, 0.1].sample(random: random))

    def check_metrics(random)
      @observers.check_metrics(@checked)
      sleep(random.rand * 0.02)
    end

    def pass_deadline(random)
      Heddle.deadline(0.005) { Load.stall(random) && sleep(0.001) }
    rescue Heddle::DeadlineExceeded
      sleep(random.rand * 0.1)
    end

    def collect(random)
      case random.rand(3)
      when 0 then GC.start
      when 1 then GC.compact
      else GC.start(full_mark: false)
      end
      sleep(random.rand * 0.2)
    end

    def stress(random)
      GC.stress = true
      5.times { +"x" }
      GC.stress = false
      sleep(random.rand * 0.2)
    ensure
      GC.stress = false
    end

    def make_child(random)
      @children.make(random, "thread")
      sleep(random.rand * 0.5)
    end

    def signal(random)
      Process.kill(SIGNALS.sample(random: random), Process.pid)
      sleep(random.rand * 0.02)
    end

    def disturb(random)
      thread = @targets.sample(random: random)
      if thread.alive?
        (random.rand < 0.03) ? thread.kill : thread.raise(Disturbance, "from outside")
      end
      sleep(random.rand * 0.2)
    end

    def start_ractor(random)
      ractor = Ractor.new { Array.new(20_000) { Object.new } && GC.start }
      ractor.respond_to?(:value) ? ractor.value : ractor.take
      sleep(random.rand * 0.3)
    end

    # ---- the end

    def start_end
      return unless @plan.ending

      delay = @seconds * (0.3 + (0.6 * @random.rand))
      main = Thread.current
      @end = Thread.new { sleep(delay) && finish_by(@plan.ending, main) }
    end

    # What a handler raised would take the place of the exception that ends the program.
    def finish_by(ending, main)
      @ends = true
      Judge.ending
      case ending
      when :exit then main.raise(SystemExit)
      when :exit! then exit!(0)
      when :abort then main.raise(SystemExit.new(1))
      else Process.kill(ending, Process.pid)
      end
    end

    # Handlers raise in the main thread, which must be ready for that.
    def main
      random = Random.new(@random.rand(1 << 30))
      while now < @limit
        begin
          @open = true
          Judge.contained("the main thread") { round(random) }
          @open = false
        rescue Disturbance
          nil
        end
      end
      @open = false
    end

    def finish
      @end&.join # where the threads were so slow that it comes only now
      @threads.each { |thread| thread.join(JOIN) || Judge.fault("#{thread.name} does not end: #{thread.backtrace}") }
      @children.wait
      used = Heddle.metrics["heddle.pool.used"].values.values
      Judge.fault("pools have #{used} in use") if used.any?(&:negative?)
    end
  end
end

# frozen_string_literal: true

require "heddle/metrics"
require "json"
require_relative "judge"
require_relative "load"

module InsightFuzz
  # What a program may ask of insight, at any moment and from any thread.
  class Observers
    # @param folder [String] of the traces
    # @param toggles [Boolean] whether insight is switched off and on
    def initialize(folder, toggles:, prometheus:)
      @folder = folder
      @toggles = toggles
      @prometheus = prometheus
    end

    # @return [Array<Proc>] each gets a Random
    def all = @all ||= private_methods(false).grep(/\Aobserve_/).sort.map { |name| method(name).to_proc }

    # Runs the block in a trace, unless there is one. Marks a trace that has ended: an exit of the process cuts it.
    def trace(random)
      path = "#{@folder}/#{Process.pid}-#{random.rand(1 << 60)}.json"
      begun = nil
      begin
        Heddle.trace(path) { (begun = Process.pid) && yield }
      ensure
        File.write("#{path}.ended", "") if begun == Process.pid
      end
    rescue Heddle::TraceInProgress
      nil
    end

    # Watches for the time of the block, or for some milliseconds.
    def watch(random, limit = 0.01 + (random.rand * 0.09))
      watch = Heddle.watch_stalls(limit) do |stall|
        JSON.generate(stall.to_s)
        raise Disturbance, "of a report" if random.rand < 0.01
      end
      block_given? ? yield : sleep(random.rand * 0.1)
    ensure
      watch&.stop
    end

    # @param seen [Hash] what the last call found
    def check_metrics(seen)
      Heddle.metrics.each do |metric|
        metric.values.each { |labels, value| check(metric, value, seen, [metric.name, labels]) }
      end
    end

    private

    def check(metric, value, seen, key)
      histogram = metric.kind == :histogram
      numbers = histogram ? [value.count, value.sum] : [value]
      Judge.fault("#{key} is #{numbers}") if numbers.any?(&:negative?)
      Judge.fault("#{key} counts #{value.counts} as #{value.count}") if histogram && value.counts.sum != value.count
      return if metric.kind == :gauge

      before = seen[key]
      Judge.fault("#{key} fell from #{before} to #{numbers}") if before&.zip(numbers)&.any? { |was, is| was > is }
      seen[key] = numbers
    end

    def observe_watch(random) = watch(random)

    def observe_stall_in_watch(random)
      Heddle.watch_stalls(0.01) { |stall| stall.inspect && sleep(random.rand * 0.01) }.during { Load.stall(random) }
    end

    def observe_trace(random)
      trace(random) do
        sleep(random.rand * 0.1)
        raise Disturbance, "in a trace" if random.rand < 0.1
      end
    end

    def observe_metrics(_) = check_metrics({})

    def observe_measuring(random) = Heddle.measure_times = random.rand < 0.5

    def observe_dump(_)
      Heddle.dump(@null ||= File.open(File::NULL, "w"))
    rescue Heddle::SchedulerMissing
      nil # no thread has one just now
    end

    def observe_stats(_) = Heddle.stats

    def observe_prometheus(_)
      Prometheus::Client::Formats::Text.marshal(Prometheus::Client.registry) if @prometheus
    end

    def observe_toggle(random)
      Heddle.insight(random.rand < 0.6) if @toggles
    end
  end
end

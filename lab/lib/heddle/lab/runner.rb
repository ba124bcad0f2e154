# frozen_string_literal: true

require "time"

module Heddle
  module Lab
    # Runs a bench: finds out which models are installed, then measures every cell in a process of its own.
    class Runner
      # @param bench [Bench]
      # @param rounds [Integer]
      # @param seed [Integer]
      # @param child [Child]
      # @param affinity [Affinity]
      # @param argv [Array<String>] for the record
      # @param twins [Boolean] whether references are measured against themselves, too, for the noise floor
      # @param progress [IO] shows the progress, if it is a terminal
      def initialize(bench, rounds:, seed:, child:, affinity:, argv: [], twins: true, progress: $stderr)
        @bench = bench
        @rounds = rounds
        @seed = seed
        @child = child
        @affinity = affinity
        @argv = argv
        @twins = twins
        @progress = progress
      end

      # @return [Record]
      # @raise [Error] when no model can run
      def run
        present, missing = probe
        record = Record.new(header(present, missing))
        @bench.open(@affinity) { measure(plan(present.keys), record) }
        record.header["environment"]["load_after"] = Environment.load_average
        record
      end

      private

      # @return [Array(Hash{Model => Hash}, Hash{Model => String})] the models that can run, and those that cannot
      def probe
        answers = @bench.models.to_h { |model| [model, probe_of(model)] }
        missing, present = answers.partition { |_, answer| answer["error"] }.map(&:to_h)
        missing.transform_values! { |answer| answer["error"] }
        return [present, missing] unless present.empty?

        raise Error, "no model can run:\n#{missing.map { |model, error| "  #{model.name}: #{error}" }.join("\n")}"
      end

      def probe_of(model)
        answer = @child.run(job(model, {}).merge("probe" => true), environment: model.environment)
        return answer if answer["error"] || !model.yjit? || answer["yjit"]

        {"error" => "#{answer["ruby"][/\Aruby [\d.]+/]} does not turn YJIT on"}
      end

      def plan(models)
        twins = @twins ? @bench.references(models).map(&:twin) : []
        Plan.new(cases: @bench.cases, models: models + twins, rounds: @rounds, seed: @seed)
      end

      # A model that once used up the time limit of a case is not measured there again: each round would wait as long
      # for it.
      def measure(plan, record)
        cells = plan.select { |cell| @bench.applies?(cell.model, cell.bench_case) && wanted?(cell) }
        progress = Progress.new(@progress, cells.size)
        late = []
        cells.each do |cell|
          progress.step("round #{cell.round}, #{cell.bench_case.name}, #{cell.model.name}")
          next if late.include?([cell.model.name, cell.bench_case.name])

          round, was_late = measure_cell(cell)
          record.rounds << round
          late << [cell.model.name, cell.bench_case.name] if was_late
        end
      ensure
        progress&.clear
      end

      def wanted?(cell) = @bench.repeats?(cell.bench_case) || (cell.round == 1 && !cell.model.twin?)

      def measure_cell(cell)
        answer = @bench.around(cell) do
          @child.run(job(cell.model, @bench.params(cell.bench_case)), environment: cell.model.environment,
            launcher: @bench.launcher(cell.bench_case))
        end
        round = Record::Round.new(round: cell.round, case: cell.bench_case.name,
          model: cell.model.name, twin: cell.model.twin?, measures: answer["measures"], error: answer["error"])
        [round, answer["late"]]
      end

      def job(model, params)
        {"bench" => @bench.class.id, "kind" => model.kind, "argument" => model.argument, "params" => params}
      end

      def header(present, missing)
        first = (present.find { |model, _| !model.yjit? } || present.first).last
        {
          "bench" => @bench.class.id,
          "argv" => @argv,
          "started_at" => Time.now.utc.iso8601,
          "seed" => @seed,
          "rounds_asked" => @rounds,
          "options" => @bench.options,
          "environment" => {"ruby" => first["ruby"], "yjit" => first["yjit"], **Environment.describe(@affinity),
                            "load_before" => Environment.load_average},
          "cases" => @bench.cases.map(&:name),
          "models" => present.map do |model, answer|
            {"name" => model.name, "versions" => answer["versions"], "environment" => model.environment}
          end,
          "missing" => missing.map { |model, error| {"name" => model.name, "reason" => error} }
        }
      end
    end
  end
end

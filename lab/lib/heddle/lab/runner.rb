# frozen_string_literal: true

require "time"

module Heddle
  module Lab
    # Runs a bench: finds out which models are installed, then measures every cell in a process of its own. After
    # Interrupt the record has the cells that were measured.
    class Runner
      # What a run may go on with although it has changed: figures say little about them.
      PASSING = %w[load_before load_after descriptors].freeze
      private_constant :PASSING

      # @param bench [Bench]
      # @param rounds [Integer]
      # @param seed [Integer]
      # @param child [Child]
      # @param affinity [Affinity]
      # @param argv [Array<String>] for the record
      # @param twins [Boolean] whether references are measured against themselves, too, for the noise floor
      # @param progress [Progress, nil] is told which models are missing, which cell begins, and when a round has ended
      # @param resumed [Record, nil] of an interrupted run of the same bench, whose other cells are measured
      def initialize(bench, rounds:, seed:, child:, affinity:, argv: [], twins: true, progress: nil, resumed: nil)
        @bench = bench
        @rounds = rounds
        @seed = seed
        @child = child
        @affinity = affinity
        @argv = argv
        @twins = twins
        @progress = progress
        @resumed = resumed
      end

      # @yieldparam record [Record] whenever a round has ended
      # @return [Record] {Record#interrupted?} tells whether Interrupt ended the run
      # @raise [Error] when no model can run, or when an interrupted run cannot go on here
      # @raise [Interrupt] before the first cell was measured
      def run(&saved)
        present, missing = probe
        @progress&.missing(missing.keys, present.size + missing.size) if missing.any?
        record = record_for(present, missing)
        @bench.open(@affinity) { measure(plan(present.keys), record, &saved) }
        record.header["environment"]["load_after"] = Environment.load_average
        record.header.delete("interrupted")
        record
      rescue Interrupt
        raise if record.nil? || record.rounds.empty?

        record
      end

      private

      def record_for(present, missing)
        header = header(present, missing)
        return Record.new(header) unless @resumed

        refuse_another_machine(header)
        @resumed
      end

      # Rounds of two Rubies, or of two versions of a library, are not one run.
      def refuse_another_machine(header)
        then_and_now = [@resumed.header, header].map do |one|
          {**one["environment"].except(*PASSING), "models" => one["models"], "missing" => one["missing"]}
        end
        changed = then_and_now.first.keys.union(then_and_now.last.keys).find do |name|
          then_and_now.first[name] != then_and_now.last[name]
        end
        return unless changed

        before, now = then_and_now.map { |one| one[changed].inspect }
        raise Error, "the run cannot go on: its #{changed} was #{before}, and is #{now} now"
      end

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
        late = record.rounds.select(&:late).map { |round| [round.model, round.case] }
        cells = cells_of(plan, record)
        @progress&.begin(cells.size)
        cells.chunk_while { |cell, following| cell.round == following.round }.each do |of_one_round|
          of_one_round.each do |cell|
            @progress&.step(cell)
            next if late.include?([cell.model.name, cell.bench_case.name])

            record.rounds << measure_cell(cell)
            late << [cell.model.name, cell.bench_case.name] if record.rounds.last.late
          end
          @progress&.round_ended(record)
          yield record if block_given?
        end
      ensure
        @progress&.clear
      end

      # The cells that are to be measured, in the plan's order.
      def cells_of(plan, record)
        measured = record.rounds.to_h { |round| [[round.round, round.case, round.model, round.twin], true] }
        plan.select { |cell| @bench.applies?(cell.model, cell.bench_case) && wanted?(cell) }.reject do |cell|
          measured[[cell.round, cell.bench_case.name, cell.model.name, cell.model.twin?]]
        end
      end

      def wanted?(cell) = @bench.repeats?(cell.bench_case) || (cell.round == 1 && !cell.model.twin?)

      def measure_cell(cell)
        answer = @bench.around(cell) do
          @child.run(job(cell.model, @bench.params(cell.bench_case)), environment: cell.model.environment,
            launcher: @bench.launcher(cell.bench_case))
        end
        Record::Round.new(round: cell.round, case: cell.bench_case.name, model: cell.model.name,
          twin: cell.model.twin?, measures: answer["measures"], error: answer["error"], late: answer["late"])
      end

      def job(model, params)
        {"bench" => @bench.class.id, "kind" => model.kind, "argument" => model.argument, "params" => params,
         "files" => @bench.files(model)}
      end

      def header(present, missing)
        first = (present.find { |model, _| !model.yjit? } || present.first).last
        {
          "bench" => @bench.class.id,
          "argv" => @argv,
          "started_at" => Time.now.utc.iso8601,
          "seed" => @seed,
          "rounds_asked" => @rounds,
          "interrupted" => true, # until the last cell is measured: a run that is killed has no other mark
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

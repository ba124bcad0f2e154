# frozen_string_literal: true

require_relative "../report/difference"
require_relative "../report/loss"

module Heddle
  module Lab
    class CLI
      # `heddle compare A B`: what two runs of a bench differ in, beyond their noise; for a reader, and for CI.
      class CompareCommand
        FORMATS = %w[table md].freeze
        # A condition of `--fail-if`.
        # @!attribute metric [String] the beginning of its title
        # @!attribute sign [Symbol] :> or :<
        # @!attribute limit [Float] of the second run's figure, divided by the first one's
        Condition = Struct.new(:metric, :sign, :limit) do
          # @param title [String] of a metric
          def about?(title) = title.downcase.start_with?(metric.downcase)

          # @param difference [Report::Difference]
          def met?(difference)
            about?(difference.metric.title) && difference.ratio.median.public_send(sign, limit) && !difference.noise?
          end

          def to_s = "#{metric} #{sign} #{limit}"
        end
        private_constant :FORMATS, :Condition

        # @param out [IO]
        # @param err [IO]
        def initialize(out, err)
          @out = out
          @err = err
          @format = "table"
          @conditions = []
        end

        # @param argv [Array<String>]
        # @return [Integer] 0; 1 where a condition of --fail-if is met
        # @raise [UsageError, OptionParser::ParseError, Error]
        def run(argv)
          files = parser.parse(argv)
          return Help.print(parser.help, @out) if @help
          raise UsageError, "compare takes two .json files of one bench, the older first" unless files.size == 2

          before, after = files.map { |file| [file, *summary_of(file)] }
          check(before, after)
          differences = Report::Difference.all(before[2], after[2], after[1])
          refuse_unknown_metrics(differences)
          lost = Report::Loss.all(before[2], after[2]).select { |loss| asked?(loss.model) }
          @out.puts render(before, after, differences.select { |difference| asked?(difference.model) }, lost)
          fail_if(differences, lost)
        end

        private

        def parser
          @parser ||= OptionParser.new do |options|
            options.banner = "Usage: heddle compare BEFORE AFTER [options]\nSays in what two .json files of a bench " \
              "differ beyond their noise: AFTER's figure / BEFORE's.\n\n"
            options.on("--fail-if CONDITION", "exit with 1 where 'METRIC > RATIO' (or <) is true beyond the noise,",
              "as 'CPU > 1.05', or where figures of BEFORE are lost; METRIC is the beginning",
              "of a figure's name") do |text|
              @conditions << condition(text)
            end
            options.on("--models NAMES", Array, "only these models") { |names| @models = names }
            options.on("-o", "--output FORMAT", FORMATS, "table, md (for a comment)") { |format| @format = format }
            options.on("-h", "--help", "this text") { @help = true }
          end
        end

        def condition(text)
          match = /\A\s*(?<metric>\S.*?)\s*(?<sign>[<>])\s*(?<limit>\d+(?:\.\d+)?)\s*\z/.match(text)
          raise UsageError, "--fail-if takes METRIC > RATIO, as in 'CPU > 1.05', not #{text.inspect}" unless match

          Condition.new(match[:metric], match[:sign].to_sym, match[:limit].to_f)
        end

        def summary_of(file)
          record = Record.read(file)
          bench = Bench.find(record.header["bench"]).new
          BenchCommand.new(bench, @out, @err).recorded(record)
          [bench, Summary.new(record)]
        end

        def check(before, after)
          benches = [before, after].map { |_, _, summary| summary.record.header["bench"] }
          unless benches.uniq.one?
            raise UsageError, "#{before.first} is a run of bench #{benches.first}, #{after.first} of #{benches.last}"
          end

          known = [before, after].map { |_, _, summary| summary.models }.reduce(:&)
          unknown = @models.to_a - known
          raise UsageError, "both runs measured #{known.join(", ")}; not #{unknown.first}" if unknown.any?
        end

        def refuse_unknown_metrics(differences)
          titles = differences.map { |difference| difference.metric.title }.uniq
          return if titles.empty? # all are lost

          wrong = @conditions.find { |condition| titles.none? { |title| condition.about?(title) } }
          raise UsageError, "there is no figure #{wrong.metric.inspect}; there are #{titles.join(", ")}" if wrong
        end

        def asked?(model) = @models.nil? || @models.include?(model)

        def render(before, after, differences, lost)
          title = "#{before.first} and #{after.first}: #{after[1].title}"
          report = (@format == "md") ? Report::Markdown : Report::Text.for(@out)
          tables = [Report::Difference.table(differences), (Report::Loss.table(lost) if lost.any?)].compact
          report.render(title, tables, facts(before[2].record, after[2].record))
        end

        # What else differs, and may be the reason.
        def facts(before, after)
          first, second = [before, after].map { |record| circumstances(record.header) }
          changed = (first.keys | second.keys).reject { |name| first[name] == second[name] }
          return ["made on the same machine, with the same versions and options"] if changed.empty?

          changed.map { |name| "#{name}: #{first.fetch(name, "nothing")}; then #{second.fetch(name, "nothing")}" }
        end

        def circumstances(header)
          versions = header["models"].to_h { |model| [model["name"], model["versions"].join(", ")] }
          run = {"rounds" => header["rounds_asked"], "interrupted" => header.fetch("interrupted", false)}
          {**header["environment"].except("load_after"), **header["options"], **run, **versions}
        end

        def fail_if(differences, lost)
          return 0 if @conditions.empty?

          met = lost.map { |loss| "heddle: #{loss}" } + @conditions.flat_map do |condition|
            differences.select { |one| asked?(one.model) && condition.met?(one) }
              .map { |difference| "heddle: #{condition}: #{difference}" }
          end
          @err.puts(met)
          met.empty? ? 0 : 1
        end
      end
    end
  end
end

# frozen_string_literal: true

require "fileutils"
require "shellwords"

module Heddle
  module Lab
    class CLI
      # `heddle bench NAME`: options, a run, its report.
      class BenchCommand
        FORMATS = %w[table csv json md].freeze
        private_constant :FORMATS

        # @param bench [Bench]
        # @param out [IO]
        # @param err [IO]
        def initialize(bench, out, err)
          @bench = bench
          @out = out
          @err = err
          @rounds = bench.class.default_rounds
          @deadline = 60.0
          @format = "table"
          @twins = true
        end

        # @param argv [Array<String>]
        # @return [Integer] 0, or 1 where a cell of Heddle's own or of plain Ruby failed
        # @raise [UsageError, OptionParser::ParseError, Error]
        def run(argv)
          rest = parser.parse(argv)
          return @out.puts(parser.help).then { 0 } if @help

          @bench.operands = rest
          @bench.models # raises for an unknown model, before anything runs
          record = measure(argv)
          summary = Summary.new(record)
          @out.puts render(summary)
          write(summary) if @directory
          # CSV has no place for the models that were not measured.
          record.header["missing"].each { |model| @err.puts "heddle: #{missing(model)}" } if @format == "csv"
          failure(record)
        end

        # @param record [Record] of this bench
        # @return [Hash{String => Report::BarChart}] by what they show
        def graphs(record)
          @bench.operands = parser.parse(record.header["argv"].drop(2))
          @bench.graphs(Summary.new(record))
        end

        private

        def parser
          @parser ||= OptionParser.new do |options|
            id = @bench.class.id
            operands = [id, @bench.class.operands].compact.join(" ")
            options.banner = "Usage: heddle bench #{operands} [options]\n#{@bench.class.about}\n\n"
            options.on("--models NAMES", Array, "models to measure (#{@bench.class.default_models.join(",")});",
              "kinds: #{kinds}; kind@uring and kind@epoll choose a backend, kind+yjit turns YJIT on") do |names|
                @bench.model_names = names
              end
            @bench.define_options(options)
            define_run_options(options)
            options.on("-o", "--output FORMAT", FORMATS, "table, csv (every round), json (every round), md") do |format|
              @format = format
            end
            options.on("--out DIR", "also write DIR/NAME.md and .json, which heddle bench draw draws") do |directory|
              @directory = directory
            end
            options.on("--name NAME", "the files' name (#{id}-ruby and its version)") { |name| @name = name }
            options.on("-h", "--help", "this text") { @help = true }
          end
        end

        def define_run_options(options)
          options.on("--rounds N", Integer, "times to measure each cell (#{@rounds})") do |rounds|
            raise UsageError, "--rounds must be at least 1" unless rounds.positive?

            @rounds = rounds
          end
          options.on("--deadline SECONDS", Float, "longest a cell may take (#{@deadline.to_i})") do |deadline|
            raise UsageError, "--deadline must be above 0" unless deadline.positive?

            @deadline = deadline
          end
          options.on("--no-twins", "do not measure the reference against itself: quicker, without a noise floor") do
            @twins = false
          end
          options.on("--seed N", Integer, "draws the order; the same seed gives the same order") { |seed| @seed = seed }
          options.on("--ruby PATH", "the Ruby that runs the measured processes (this one)") { |ruby| @ruby = ruby }
        end

        def kinds
          @bench.class.kinds.map do |kind, rule|
            {required: "#{kind}:N", optional: "#{kind}[:N]", none: kind}.fetch(rule)
          end.join(", ")
        end

        def measure(argv)
          affinity = @bench.pinned? ? Affinity.new : Affinity.new(taskset: false)
          child = Child.new(ruby: @ruby || RbConfig.ruby, core: affinity.client, deadline: @deadline)
          seed = @seed || Random.new_seed % 1_000_000
          Runner.new(@bench, rounds: @rounds, seed: seed, child: child, affinity: affinity,
            argv: ["bench", @bench.class.id, *argv], twins: @twins, progress: @err).run
        end

        # If a library fails on this Ruby, that is only a line of the report.
        def failure(record)
          unless record.clean?
            @err.puts "heddle: measurements of #{record.failed.join(", ")} failed; the report says how"
          end
          peers = @bench.models.select { |model| @bench.class.peers.include?(model.kind) }.map(&:name)
          (record.failed - peers).empty? ? 0 : 1
        end

        def render(summary)
          case @format
          when "csv" then @bench.csv(summary.record)
          when "json" then summary.record.to_json
          when "md" then markdown(summary)
          else Report::Text.new(colour: @out.tty? && ENV["NO_COLOR"].to_s.empty?)
            .render(@bench.title, @bench.tables(summary), facts(summary.record))
          end
        end

        def markdown(summary)
          Report::Markdown.render(@bench.title, @bench.tables(summary) + @bench.details(summary),
            facts(summary.record))
        end

        def write(summary)
          FileUtils.mkdir_p(@directory)
          name = @name || "#{@bench.class.id}-ruby#{summary.record.header["environment"]["ruby"][/[\d.]+/]}"
          File.write(File.join(@directory, "#{name}.md"), markdown(summary))
          File.write(File.join(@directory, "#{name}.json"), summary.record.to_json)
        rescue SystemCallError => error
          raise Error, "cannot write the report: #{error.message}"
        end

        # The facts on which the figures depend, one in each line.
        def facts(record)
          header = record.header
          environment = header["environment"]
          [
            "#{environment["ruby"]}, YJIT #{environment["yjit"] ? "on" : "off"}",
            *header["models"].map { |model| present(model) },
            *header["missing"].map { |model| missing(model) },
            "#{environment["cpu"]}, #{environment["cores"]} cores, #{environment["kernel"]}; " \
            "governor: #{environment["governor"] || "unknown"}",
            "pinned: #{environment["pinned"]}; " \
            "load average before #{environment["load_before"]}, after #{environment["load_after"]}",
            "#{header["started_at"]}, git #{environment["git"] || "unknown"}, " \
            "#{header["rounds_asked"]} rounds, order drawn with seed #{header["seed"]}",
            "again: heddle #{Shellwords.join(repeatable(header))}"
          ]
        end

        def present(model)
          settings = model["environment"].map { |pair| pair.join("=") }
          "#{model["name"]}: #{[*model["versions"], *settings].join(", ")}"
        end

        def missing(model) = "#{model["name"]}: not measured: #{model["reason"]}"

        def repeatable(header)
          header["argv"].include?("--seed") ? header["argv"] : [*header["argv"], "--seed", header["seed"].to_s]
        end
      end
    end
  end
end

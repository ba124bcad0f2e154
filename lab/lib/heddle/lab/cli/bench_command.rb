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
        # @return [Integer] 0; 1 where a cell of Heddle's own or of plain Ruby failed; 130 when interrupted
        # @raise [UsageError, OptionParser::ParseError, Error]
        def run(argv)
          prepare(argv)
          return Help.print(parser.help, @out) if @help

          check_places
          return RubyComparison.new(commands(argv), @out, progress, html: @html).run if @rubies

          record = measure(progress)
          @out.puts render(Summary.new(record))
          finish(record)
        end

        # Takes the options. Raises before anything runs.
        # @param argv [Array<String>]
        # @return [BenchCommand] self
        # @raise [UsageError, OptionParser::ParseError, Error]
        def prepare(argv)
          rest = parser.parse(argv)
          return self if @help

          argv, rest = take_up(argv) if @resume
          find_rubies unless @resume
          @argv = argv
          @bench.operands = rest
          @bench.models
          if @rubies && !%w[table md].include?(@format)
            raise UsageError, "--rubies prints table or md; --out DIR leaves the .json of each Ruby"
          end
          self
        end

        # Measures on one of several Rubies that are compared.
        # @param ruby [InstalledRuby]
        # @param label [String] tells it from the others
        # @return [BenchCommand] self
        def on(ruby, label)
          @ruby = ruby
          @name = "#{@name || @bench.class.id}-ruby#{label}"
          @html = nil # of all Rubies
          self
        end

        # @param progress [Progress]
        # @yield whenever a round has ended
        # @return [Record]
        # @raise [Error]
        def measure(progress)
          @revision = History::Entry.revision
          affinity = @bench.pinned? ? Affinity.new : Affinity.new(taskset: false)
          child = Child.new(ruby: @ruby || InstalledRuby.current, core: affinity.client, deadline: @deadline)
          seed = @seed || Random.new_seed % 1_000_000
          runner = Runner.new(@bench, rounds: @rounds, seed: seed, child: child, affinity: affinity,
            argv: ["bench", @bench.class.id, *@argv], twins: @twins, progress: progress, resumed: @resumed)
          runner.run do |record|
            write(record) if @directory
            yield if block_given?
          end
        end

        # Writes the files that were asked for, and says what is missing.
        # @param record [Record]
        # @return [Integer] exit status, as for {#run}
        def finish(record)
          if record.interrupted? && !@directory
            @directory, @name = ".", "#{@name || @bench.class.id}-interrupted-#{Process.pid}"
          end
          page(record).write(@html) if @html
          if @directory
            write(record)
            to_file(path(record, "md"), markdown(Summary.new(record)))
          end
          keep(record) if @history && !record.interrupted?
          # CSV has no place for the models that were not measured.
          record.header["missing"].each { |model| @err.puts "heddle: #{missing(model)}" } if @format == "csv"
          record.interrupted? ? interrupted(record) : failure(record)
        end

        # @param records [Hash{String => Record}] of this bench, by the labels of their Rubies
        # @return [String] their tables, the Rubies beside each other
        def side_by_side(records)
          tables = Report::Table.side_by_side(records.transform_values { |record| @bench.tables(Summary.new(record)) })
          facts = records.values.flat_map { |record| facts(record) }.uniq
          report = (@format == "md") ? Report::Markdown : Report::Text.for(@out)
          report.render(@bench.title, tables, facts)
        end

        # @param record [Record] of this bench
        # @return [Hash{String => Report::BarChart}] by what they show
        def graphs(record)
          take_options(record)
          @bench.graphs(Summary.new(record))
        end

        # Prints the tables of a run that is over.
        # @param record [Record] of this bench
        def show(record)
          take_options(record)
          @out.puts text(Summary.new(record), @out)
        end

        # @param record [Record] of this bench
        # @param name [String]
        # @return [Report::Run]
        def recorded(record, name = name_of(record))
          take_options(record)
          Report::Run.new(name, @bench, record, facts(record))
        end

        private

        def parser
          @parser ||= OptionParser.new do |options|
            id = @bench.class.id
            operands = [id, @bench.class.operands].compact.join(" ")
            options.banner = "Usage: heddle bench #{operands} [options]\n#{@bench.class.about}\n\n"
            options.on("--models NAMES", Array, "models to measure (#{@bench.class.default_models.join(",")});",
              "kinds: #{kinds}; kind@uring and kind@epoll choose a backend, kind+yjit turns YJIT on,",
              "heddle+insight and heddle+watched what heddle ps and Heddle.watch_stalls need") do |names|
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
            options.on("--html FILE", "also write a page in which readers choose what is drawn") { |file| @html = file }
            options.on("--name NAME", "the files' name (#{id}-ruby and its version)") { |name| @name = name }
            options.on("--resume FILE", "measure what an interrupted run lacks: its .json has its options") do |file|
              @resume = file
            end
            options.on("--record DIR", "also keep the figures in a history, for heddle report --history") do |directory|
              @history = directory
            end
            options.on("--machine NAME", "the history's name for this machine (the host's)") { |name| @machine = name }
            options.on("-h", "--help", "this text") { @help = true }
          end
        end

        def page(record)
          Report::Page.new([recorded(record)], title: @bench.title)
        end

        # Before a run of minutes or hours, and not after it.
        def check_places
          folders = [@directory, @history, @html && File.dirname(@html)].compact
          folders.each { |folder| FileUtils.mkdir_p(folder) }
          wrong = folders.find { |folder| !File.writable?(folder) } || (@html if @html && File.directory?(@html))
          raise Error, "cannot write the report: #{wrong} is a folder, or is not yours to write" if wrong
        rescue SystemCallError => error
          raise Error, "cannot write the report: #{error.message}"
        end

        # Figures of an interrupted run would be those of fewer rounds; a run that --resume completes is kept.
        def keep(record)
          machine = @machine ? {machine: @machine} : {}
          History::Entry.of(record, recorded(record), title: @bench.title, revision: @revision, **machine)
            .write(@history)
        end

        # The bench gets the options with which the record was made.
        def take_options(record) = @bench.operands = parser.parse(record.header["argv"].drop(2))

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
          options.on("--ruby RUBY", "the Ruby that is measured: a version or a path (this one)") do |name|
            @ruby_name = name
          end
          options.on("--rubies RUBIES", Array, "run on several: versions or paths; a round on each in turn") do |names|
            @ruby_names = names
          end
        end

        # Not while options are parsed: a record's may name Rubies of another machine.
        def find_rubies
          @ruby = InstalledRuby.find(@ruby_name) if @ruby_name
          @rubies = @ruby_names&.map { |name| InstalledRuby.find(name) }
        end

        def kinds
          @bench.class.kinds.map do |kind, rule|
            {required: "#{kind}:N", optional: "#{kind}[:N]", none: kind}.fetch(rule)
          end.join(", ")
        end

        # The command line of the run that goes on, and its operands; its files are written again.
        def take_up(argv)
          raise UsageError, "--resume takes its options from the file; leave out the others" if argv.size > 2

          @resumed = Record.read(@resume)
          asked = @resumed.header["argv"]
          id = @bench.class.id
          raise UsageError, "#{@resume} is a run of bench #{asked[1]}, not of #{id}" unless asked[1] == id
          raise UsageError, "#{@resume} lacks nothing: its run came to its end" unless @resumed.interrupted?

          rest = parser.parse(asked.drop(2))
          find_rubies
          @seed = @resumed.header["seed"]
          @directory, @name = File.dirname(@resume), File.basename(@resume, ".json")
          description = @resumed.header["environment"]["ruby"]
          @ruby = @rubies.find { |ruby| ruby.description == description } if @rubies
          @rubies = nil
          [asked.drop(2), rest]
        end

        def progress = Progress.new(@err, @rounds) { |record| text(Summary.new(record), @err) }

        # By their Rubies' labels. All measure in the same order.
        def commands(argv)
          argv += ["--seed", (Random.new_seed % 1_000_000).to_s] unless @seed
          labels = @rubies.map(&:version)
          labels = labels.map.with_index(1) { |label, number| "#{label}-#{number}" } unless labels.uniq == labels
          labels.zip(@rubies).to_h do |label, ruby|
            [label, BenchCommand.new(@bench.class.new, @out, @err).prepare(argv).on(ruby, label)]
          end
        end

        def interrupted(record)
          @err.puts "heddle: interrupted, cells measured: #{record.rounds.size}; for the others: " \
            "heddle bench #{@bench.class.id} --resume #{Shellwords.escape(path(record, "json"))}"
          130
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
          else text(summary, @out)
          end
        end

        def text(summary, output)
          Report::Text.for(output).render(@bench.title, @bench.tables(summary), facts(summary.record))
        end

        def markdown(summary)
          Report::Markdown.render(@bench.title, @bench.tables(summary) + @bench.details(summary),
            facts(summary.record))
        end

        # At the end of each round, too: a run that is killed loses none.
        def write(record)
          to_file(path(record, "json"), record.to_json)
        end

        def to_file(path, text)
          FileUtils.mkdir_p(@directory)
          File.write("#{path}.new", text)
          File.rename("#{path}.new", path)
        rescue SystemCallError => error
          raise Error, "cannot write the report: #{error.message}"
        end

        def name_of(record) = @name || "#{@bench.class.id}-ruby#{record.header["environment"]["ruby"][/[\d.]+/]}"

        def path(record, extension) = File.join(@directory, "#{name_of(record)}.#{extension}")

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
            "#{header["rounds_asked"]} rounds#{", interrupted" if record.interrupted?}, " \
            "order drawn with seed #{header["seed"]}",
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

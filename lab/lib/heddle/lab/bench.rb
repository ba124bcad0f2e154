# frozen_string_literal: true

module Heddle
  module Lab
    # Describes a bench to the runner, which does the rest. A bench is a subclass in bench/NAME.rb; its processes run a
    # {Workload} from workload/NAME.rb.
    class Bench
      class << self
        # @return [String] the name on the command line, and of the workload
        attr_reader :id
        # @return [String] one line for `heddle bench list`
        attr_reader :about
        # @return [Hash{String => Symbol}] kinds of model; see {Model.parse}
        attr_reader :kinds
        # @return [Array<String>] kinds that are other libraries: a failure of one is only a line of the report
        attr_reader :peers
        # @return [Array<String>] models when none are asked for
        attr_reader :default_models
        # @return [Integer] how often each cell is measured without `--rounds`
        attr_reader :default_rounds

        # Declares the bench.
        # @param id [String]
        # @param about [String]
        # @param kinds [Hash{String => Symbol}]
        # @param default_models [Array<String>]
        # @param peers [Array<String>]
        # @param default_rounds [Integer]
        def bench(id, about:, kinds:, default_models:, peers: [], default_rounds: 5)
          @id = id
          @about = about
          @kinds = kinds
          @default_models = default_models
          @peers = peers
          @default_rounds = default_rounds
          Bench.all[id] = self
        end

        # @return [Hash{String => Class}] every bench by its name
        def all = (@all ||= {})

        # @param id [String]
        # @return [Class]
        # @raise [UsageError]
        def find(id)
          Bench.all.fetch(id) do
            raise UsageError, "unknown bench #{id.inspect}; choose from #{Bench.all.keys.join(", ")}"
          end
        end
      end

      # @return [Array<String>] names of the models to run
      attr_writer :model_names

      # Adds the bench's own options to the command line.
      # @param parser [OptionParser]
      def define_options(parser)
      end

      # @return [String, nil] what may follow the options, for the usage line
      def self.operands = nil

      # Takes what follows the options on the command line.
      # @param operands [Array<String>]
      # @raise [UsageError]
      def operands=(operands)
        raise UsageError, "unexpected argument #{operands.first.inspect}" unless operands.empty?
      end

      # @return [Hash{String => Object}] the bench's own options as they were set, for the record
      def options = {}

      # @return [Array<Model>]
      # @raise [UsageError]
      def models
        @models ||= (@model_names || self.class.default_models).uniq.map { |name| Model.parse(name, kinds) }
      end

      # @return [Hash{String => Symbol}] kinds of model; see {Model.parse}
      def kinds = self.class.kinds

      # @param model [Model]
      # @return [Array<String>] paths of the user's own files that the model's process loads
      def files(model) = []

      # @return [Array<Case>]
      def cases = raise(NotImplementedError)

      # Whether the model can run this case.
      # @param model [Model]
      # @param bench_case [Case]
      # @return [Boolean]
      def applies?(model, bench_case) = true

      # Whether each round measures the case again, and a twin: needless for a count that is the same each time.
      # @param bench_case [Case]
      # @return [Boolean]
      def repeats?(bench_case) = true

      # Holds open what the run needs, such as a server, while the block runs.
      # @param affinity [Affinity]
      def open(affinity) = yield

      # @return [Boolean] whether the measured processes and the server each get a core of their own, if the machine has
      #   two
      def pinned? = true

      # @param bench_case [Case]
      # @return [Hash{String => Object}] parameters for the child
      def params(bench_case) = bench_case.params

      # @param bench_case [Case]
      # @return [Array<String>] a command that runs the child in an environment of its own
      def launcher(bench_case) = []

      # Wraps the run of one cell; may add to its measures.
      # @param cell [Plan::Cell]
      # @yieldreturn [Hash{String => Object}] the child's answer
      # @return [Hash{String => Object}]
      def around(cell) = yield

      # The model with which a model is compared: async on the same backend, async, or the first.
      # @param model [String]
      # @param present [Array<String>] names of the models that run
      # @return [String] one of them
      def reference_for(model, present)
        backend = model[/@\w+/]
        [backend && "async#{backend}", "async", present.grep(/\Aasync/).first].find { |name| present.include?(name) } ||
          present.first
      end

      # If a reference was not measured, the next one takes its place.
      # @param summary [Summary]
      # @param model [String]
      # @param name [String] of a case
      # @param metric [Metric]
      # @return [String] the model with which the model is compared there
      def reference_in(summary, model, name, metric)
        measured = summary.models.select { |other| summary.spread(other, name, metric).median }
        reference_for(model, measured.empty? ? summary.models : measured)
      end

      # @param models [Array<Model>]
      # @return [Array<Model>] those with which others are compared
      def references(models)
        names = models.map(&:name)
        wanted = names.map { |name| reference_for(name, names) }.uniq
        models.select { |model| wanted.include?(model.name) }
      end

      # @return [String] the heading of the report
      def title = raise(NotImplementedError)

      # @param summary [Summary]
      # @return [Array<Report::Table>]
      def tables(summary) = raise(NotImplementedError)

      # Tables too wide for a terminal, for the report that is written to a file.
      # @param summary [Summary]
      # @return [Array<Report::Table>]
      def details(summary) = []

      # @param record [Record]
      # @return [String] every round as a line of CSV
      def csv(record) = Report::CSV.render(record)

      # @param summary [Summary]
      # @return [Hash{String => Report::BarChart}] by the end of their file names
      def graphs(summary) = {}

      private

      # Adds --operations: @operations are the names asked for, or nil for all.
      # @param names [Array<String>]
      def operations_option(parser, names)
        parser.on("--operations NAMES", Array, "which to run (#{names.join(",")})") do |asked|
          @operations = known("operation", asked, names)
        end
      end

      # Adds --scale: @scale is the factor asked for, or unchanged.
      # @param what [String] what there are more or fewer of
      def scale_option(parser, what)
        parser.on("--scale FACTOR", Float, "times the usual number of #{what} (1)") do |scale|
          @scale = above_zero("--scale", scale)
        end
      end

      # @return [Integer] the number, as an option's value
      # @raise [UsageError] when it is less than +least+
      def at_least(least, option, number)
        raise UsageError, "#{option} must be at least #{least}" if number < least

        number
      end

      # @return [Float] the number, as an option's value
      # @raise [UsageError] when it is not above 0
      def above_zero(option, number)
        raise UsageError, "#{option} must be above 0" unless number.positive?

        number
      end

      # @return [Array<String>] what was asked for
      # @raise [UsageError] when there is no such +kind+ of thing
      def known(kind, asked, names)
        unknown = asked - names
        raise UsageError, "unknown #{kind} #{unknown.first.inspect}; choose from #{names.join(", ")}" if unknown.any?

        asked
      end

      # Provides a shared server as @server while the block runs, on the server's core.
      # @param kind [Symbol] see {Servers}
      # @raise [Error] when it cannot be started
      def with_server(affinity, kind)
        @server = Servers.public_send(kind)
        system("taskset", "-acp", affinity.server.to_s, @server.pid.to_s, out: File::NULL) if affinity.pinned?
        yield
      rescue Servers::Unavailable, Servers::StartFailed => error
        raise Error, error.message
      end
    end
  end
end

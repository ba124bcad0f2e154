# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # How long unmodified clients wait for a server that misbehaves, with a limit of one second.
      class Deadlines < Bench
        bench "deadlines",
          about: "seconds that unmodified clients wait for silent, stalled and dripping servers, " \
          "when one was asked for",
          kinds: {"own" => :none, "timeout" => :none, "heddle_threads" => :none, "heddle" => :none},
          default_models: %w[own timeout heddle_threads heddle heddle@epoll]

        # Seconds after which the bench stops waiting for a client.
        PATIENCE = 15
        FAULTS = {"silent" => "silent", "line" => "stalled in the reply's first line or header",
                  "value" => "stalled in a value", "drip" => "one byte every 0.5 s"}.freeze
        # The facts that are recorded about a client after a fault.
        STATES = %w[outcome connection next].freeze
        CLIENTS = {"dalli" => :memcached, "redis-client" => :redis, "pg" => :postgresql, "mysql2" => :mariadb,
                   "trilogy" => :mariadb, "Net::HTTP" => :load}.freeze
        METRICS = FAULTS.to_h do |fault, what|
          [fault, Metric.new(key: fault.to_sym, title: "#{what.capitalize}: seconds until it gave up", better: :lower,
            value: ->(m) { m[fault] })]
        end.freeze
        private_constant :PATIENCE, :FAULTS, :CLIENTS, :METRICS

        # @see Bench#define_options
        def define_options(parser)
          parser.on("--clients NAMES", Array, "which to run (#{CLIENTS.keys.join(",")})") do |asked|
            @clients = known("client", asked, CLIENTS.keys)
          end
        end

        # @see Bench#options
        def options = {"clients" => @clients}.compact

        # @see Bench#cases
        def cases
          @cases ||= (@clients || CLIENTS.keys).map do |name|
            Case.new(name: name, params: {"client" => name, "faults" => FAULTS.keys, "patience" => PATIENCE})
          end
        end

        # @see Bench#open
        def open(_)
          @program = ServerProcess.program
          cases.each { |bench_case| Servers.public_send(CLIENTS.fetch(bench_case.name)) }
          yield
        rescue Servers::Unavailable, Servers::StartFailed => error
          raise Error, error.message
        end

        # @see Bench#params
        def params(bench_case)
          server = Servers.public_send(CLIENTS.fetch(bench_case.name))
          account = %i[username password database].select { |name| server.respond_to?(name) }.to_h do |name|
            [name.to_s, server.public_send(name)]
          end
          bench_case.params.merge("program" => @program, "host" => server.host, "port" => server.port, **account)
        end

        # Differences of some per cent do not matter here, so no model needs a reference.
        # @see Bench#references
        def references(_) = []

        # @see Bench#title
        def title = "One second asked: unmodified clients and servers that answer badly"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: false)
          tables = METRICS.values.map { |metric| matrix.values(metric) }
          tables.last.notes.push("own: the client's own timeout of 1 s, in a thread; timeout: Timeout.timeout(1), " \
            "in a thread; heddle_threads: Heddle.deadline(1), in a thread; " \
            "heddle: Heddle.deadline(1), in a fiber",
            "#{PATIENCE} means longer: the bench waits no more; each client logs in before the server falls silent")
          [*tables, states(summary), matrix.troubles].compact
        end

        private

        # The client's error, the state of its connection, and whether its next answer is right.
        def states(summary)
          rows = summary.models.product(summary.cases).flat_map do |model, name|
            rounds = summary.record.rounds.select do |round|
              round.model == model && round.case == name && round.measures
            end
            states = rounds.map { |round| round.measures["states"] }
            FAULTS.keys.map do |fault|
              [model, name, fault, *STATES.map { |state| states.map { |of| of.dig(fault, state) }.uniq.join(" or ") }]
            end
          end
          Report::Table.new(title: "What is left",
            columns: ["model", "client", "fault", "raised", "its connection", "its next operation"],
            rows: rows, notes: [], prose: true)
        end
      end
    end
  end
end

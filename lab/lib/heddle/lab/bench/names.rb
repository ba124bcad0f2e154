# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # How long other tasks of the process stop while one request looks its host up, and how that request ends.
      class Names < Bench
        bench "names",
          about: "how long a name or an address that does not answer stops everything else, " \
          "and whether a limit of 1 s is kept",
          kinds: {"threads" => :none, "async" => :none, "async_without_fallback" => :none, "heddle" => :none,
                  "heddle_deadline" => :none},
          default_models: %w[threads async async@epoll async_without_fallback heddle heddle@epoll heddle_deadline
            heddle_deadline@epoll],
          peers: %w[async async_without_fallback]

        DEAD = {v4: "192.0.2.1", other_v4: "192.0.2.2", v6: "2001:db8::1"}.freeze
        ALIVE = "127.0.0.1"
        LATE = 2
        # Each case: the host, the answer of the name server, and the outcome that is right within a second.
        CASES = {
          "address, no answer" => [DEAD[:v4], {}, "nothing"],
          "1 A, no AAAA, no answer" => ["host.test", {"a" => [DEAD[:v4]]}, "nothing"],
          "2 A, no answer" => ["host.test", {"a" => DEAD.values_at(:v4, :other_v4)}, "nothing"],
          "A and AAAA, no answer" => ["host.test", {"a" => [DEAD[:v4]], "aaaa" => [DEAD[:v6]]}, "nothing"],
          "AAAA dead, A works" => ["host.test", {"a" => [ALIVE], "aaaa" => [DEAD[:v6]]}, "connected"],
          "A dead, AAAA 2 s late" => ["host.test",
            {"a" => [DEAD[:v4]], "aaaa" => [DEAD[:v6]], "aaaa_delay" => LATE}, "nothing"],
          "A works, AAAA 2 s late" => ["host.test",
            {"a" => [ALIVE], "aaaa" => [DEAD[:v6]], "aaaa_delay" => LATE}, "connected"],
          "A and AAAA 2 s late" => ["host.test", {"a" => [ALIVE], "aaaa" => [DEAD[:v6]], "delay" => LATE}, "nothing"]
        }.freeze
        GAP = Metric.new(key: :gap, title: "Longest gap between two beats of a heart that beats every ms",
          better: :lower, value: ->(m) { m["gap"] * 1000 })
        TAKEN = Metric.new(key: :taken, title: "Seconds until it was over", better: :lower, value: ->(m) { m["taken"] })
        private_constant :DEAD, :ALIVE, :LATE, :CASES, :GAP, :TAKEN

        # @see Bench#cases
        def cases
          @cases ||= CASES.map do |name, (host, _, wanted)|
            Case.new(name: name, params: {"host" => host, "wanted" => wanted})
          end
        end

        # @see Bench#open
        def open(_)
          reason = DeadNetwork.unavailable
          raise Error, "cannot make a network namespace: #{reason}" if reason

          @program = ServerProcess.program
          yield
        end

        # @see Bench#params
        def params(bench_case) = bench_case.params.merge("server" => @program)

        # @see Bench#launcher
        def launcher(bench_case)
          _, entry, = CASES.fetch(bench_case.name)
          # The object holds a file that the launched program writes to.
          @network = DeadNetwork.new(zone: {"host.test" => entry})
          @network.launcher
        end

        # Differences of some per cent do not matter here, so no model needs a reference.
        # @see Bench#references
        def references(_) = []

        # @see Bench#title
        def title = "Net::HTTP to hosts that do not answer and names that are slow, with a limit of one second"

        # @see Bench#tables
        def tables(summary)
          [overview(summary), Report::Matrix.new(summary, self, models_down: false).troubles].compact
        end

        private

        def overview(summary)
          rows = summary.cases.map { |name| [name, *summary.models.map { |model| describe(summary, model, name) }] }
          Report::Table.new(title: "Longest stop of everything else, ms → what came of the request, " \
            "after how many seconds", columns: ["", *summary.models], rows: rows, prose: true, notes: notes)
        end

        def notes
          ["medians of the rounds; a heart that beats every millisecond shows the stop",
            "open_timeout is 1 s; heddle_deadline has Heddle.deadline(1) instead, and Net::HTTP's own 60 s",
            "no answer: addresses that are never answered, where a connect fails after 3 s by itself; 2 s late: " \
            "the name server",
            "✗ more than 10 ms, a limit that was not kept, or a connection that was not made where the fallback " \
            "would have made it"]
        end

        def describe(summary, model, name)
          gap, taken = [GAP, TAKEN].map { |metric| summary.spread(model, name, metric).median }
          return Report::Entry.new("failed", :error) unless gap

          outcomes = outcomes(summary, model, name)
          right = gap <= 10 && taken <= 1.1 && outcomes == [CASES.fetch(name).last]
          shown = outcomes.map { |outcome| (outcome == "nothing") ? "gave up" : outcome }.join(" or ")
          Report::Entry.new(format("%s%s → %s, %.2f", ("✗ " unless right), Report::Matrix.figure(gap), shown, taken),
            right ? nil : :behind)
        end

        def outcomes(summary, model, name)
          summary.record.rounds.select { |round| round.model == model && round.case == name && round.measures }
            .map { |round| round.measures["outcome"] }.uniq
        end
      end
    end
  end
end

# frozen_string_literal: true

module Heddle
  module Lab
    class CLI
      # `heddle report --history DIR`: the figures of many runs over their revisions, and the steps in them.
      class HistoryReport
        # @param history [History]
        # @param out [IO]
        # @param err [IO]
        # @param metrics [Array<String>, nil] beginnings of the titles of the figures to draw; nil for the bench's first
        # @param models [Array<String>, nil] only these
        # @param ratios [Boolean] to the reference, instead of figures
        # @param commits [String, nil] the template of a URL
        # @raise [UsageError] when there is no such model
        def initialize(history, out, err, metrics: nil, models: nil, ratios: false, commits: nil)
          @history = history
          @out = out
          @err = err
          @metrics = metrics
          @ratios = ratios
          @origin = History::Origin.new(commits)
          @lines = history.groups.to_h { |group| [group, lines_of(group, models)] }
          refuse_unknown("model", models, known(:model)) { |model, name| model == name }
          refuse_unknown("figure", metrics, known(:title)) { |title, name| asked?(title, name) }
        end

        # Prints the history.
        # @return [Integer] 0
        def print
          @out.puts(@lines.reject { |_, lines| lines.empty? }.map { |group, lines| text(group, lines) }.join("\n"))
          0
        end

        # Writes it as a page.
        # @param path [String]
        # @return [Integer] 0
        # @raise [Error]
        def write(path)
          Report::HistoryPage.new(@history.groups, @origin).write(path)
          @out.puts path
          0
        end

        # @param runs [Integer] how many of the newest runs are looked at
        # @return [Integer] 1 if a figure became worse in them, else 0
        def fail_on_step(runs)
          met = @lines.flat_map do |group, lines|
            lines.flat_map { |line| line.steps.map { |step| [group, line, step] } }
          end.select { |group, _, step| new_and_worse?(group, step, runs) }
          met.each do |group, line, step|
            @err.puts "heddle: a step at #{group.entries[step.after].label}: #{line.model}, #{line.name}: " \
              "#{line.measure} × #{Report::Matrix.figure(step.ratio)}"
          end
          met.empty? ? 0 : 1
        end

        private

        def lines_of(group, models)
          group.lines(ratios: @ratios).select { |line| models.nil? || models.include?(line.model) }
        end

        def known(what) = @history.groups.flat_map { |group| group.lines.map(&what) }.uniq

        def refuse_unknown(kind, asked, known)
          wrong = asked.to_a.find { |name| known.none? { |one| yield(one, name) } }
          raise UsageError, "there is no #{kind} #{wrong.inspect}; there are #{known.join(", ")}" if wrong
        end

        def asked?(title, name) = title.downcase.start_with?(name.downcase)

        def new_and_worse?(group, step, runs)
          step.verdict != "better" && step.after >= group.entries.size - runs
        end

        def text(group, lines)
          titles = lines.map(&:title).uniq
          drawn = @metrics ? titles.select { |title| @metrics.any? { |name| asked?(title, name) } } : titles.first(1)
          report = Report::HistoryText.new(group, lines, @origin, width: Terminal.width(@out))
          Report::Text.for(@out).render(group.title, report.tables(drawn), [*facts(group, titles - drawn), "",
            *report.findings])
        end

        def facts(group, others)
          first, last = group.entries.values_at(0, -1)
          [
            "runs: #{group.entries.size}, from #{first.label} of #{first["started_at"]} to #{last.label} of " \
            "#{last["started_at"]}#{"; ratios to the reference" if @ratios}",
            ("other figures: #{others.join("; ")}; --metrics NAMES draws them" if others.any?)
          ].compact
        end
      end
    end
  end
end

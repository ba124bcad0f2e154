# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # A history for a terminal: a sparkline for each row, then the steps.
      class HistoryText
        # Characters beside the sparkline: figure, step and floor, and the gaps.
        BESIDE = 30
        LONGEST = 60
        SHORTEST = 8
        FEWEST = "that takes #{2 * History::Steps::LEAST}"
        private_constant :BESIDE, :LONGEST, :SHORTEST, :FEWEST

        # @param group [History::Group]
        # @param lines [Array<History::Line>] of the group
        # @param origin [History::Origin]
        # @param width [Integer, nil] of the terminal; nil for a file
        def initialize(group, lines, origin, width: nil)
          @group = group
          @lines = lines
          @origin = origin
          @width = width
        end

        # @param drawn [Array<String>] titles of the metrics that are drawn
        # @return [Array<Table>] one for each metric and case, or model: of what there are fewer
        def tables(drawn)
          by_case = count(&:name) <= count(&:model)
          key, name = by_case ? %i[name model] : %i[model name]
          @lines.select { |line| drawn.include?(line.title) }.group_by { |line| [line.measure, line.public_send(key)] }
            .map { |titles, lines| table(titles.uniq.join(", "), lines, name) }
        end

        # @return [Array<String>] lines on each step and each drift, and on what there are too few runs for
        def findings
          steps = @lines.flat_map { |line| line.steps.map { |step| [line, step] } }
            .group_by { |_, step| [step.before, step.after] }.sort.flat_map { |places, found| describe(places, found) }
          drifts = @lines.select(&:drift).map do |line|
            "#{subject(line)} drifts without a step: × #{figure(line.drift)} over #{line.figures.compact.size} runs"
          end
          [*steps, *drifts, *rest(steps)]
        end

        private

        def count(&block) = @lines.map(&block).uniq.size

        def table(title, lines, name)
          names = lines.map { |line| line.public_send(name) }
          room = @width ? (@width - names.map(&:size).max - BESIDE).clamp(SHORTEST, LONGEST) : LONGEST
          drawings = lines.map { |line| Sparkline.draw(line.figures, line.steps.map(&:after), room) }
          longest = drawings.map(&:size).max
          rows = names.zip(drawings, lines).map { |one, drawing, line| [one, drawing.ljust(longest), *cells(line)] }
          Table.new(title: title, columns: ["", "runs: #{@group.entries.size}", "newest", "step", "floor"], rows: rows,
            notes: [])
        end

        def cells(line)
          step = line.steps.last
          [figure(line.newest_figure), step ? Entry.new("× #{figure(step.ratio)}", style(step)) : "–", floor(line)]
        end

        def style(step) = {"better" => :ahead, "worse" => :behind}[step.verdict]

        # Rows that change between the same two runs, below what else changed there.
        def describe(places, found)
          before, after = @group.entries.values_at(*places)
          commits = @origin.commits(before, after)
          [
            "Between #{@origin.range(before, after)}#{", commits: #{commits.size}" if commits}",
            *commits.to_a.map { |commit| "    #{commit}" },
            *@origin.url(before, after)&.then { |url| "    #{url}" },
            *found.flat_map { |line, step| @group.changes(step, line) }.uniq.map { |one| "  also changed: #{one}" },
            *found.map do |line, step|
              "  #{subject(line)} #{figure(step.from)}, then #{figure(step.to)}: × #{figure(step.ratio)}, " \
                "#{step.verdict} (noise floor #{floor(line)})"
            end,
            *("  every model changed at once: perhaps the machine did; --ratios tells" if everywhere?(found)),
            ""
          ]
        end

        def everywhere?(found) = found.map { |line, _| line.model }.uniq.size == count(&:model) && count(&:model) > 1

        def subject(line) = "#{line.model}, #{line.name}: #{line.measure}"

        def rest(steps)
          few, enough = @lines.partition { |line| !line.enough? }.map(&:size)
          [("no step is larger than the noise" if steps.empty? && enough.positive?),
            ("too few runs to tell a step from noise in #{few} of #{@lines.size} rows: #{FEWEST}" if few.positive?)]
            .compact
        end

        def floor(line) = line.floor ? format("±%.1f %%", line.floor * 100) : "–"

        def figure(number) = Matrix.figure(number)
      end
    end
  end
end

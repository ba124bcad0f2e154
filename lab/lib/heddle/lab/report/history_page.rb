# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # A history as a page: a small chart for each row with its noise floor and its steps, and each step's commits.
      class HistoryPage
        # More would be noise.
        DIGITS = 6
        private_constant :DIGITS

        # @param groups [Array<History::Group>] at least one
        # @param origin [History::Origin]
        # @param title [String]
        def initialize(groups, origin, title: "History of heddle bench")
          @groups = groups
          @origin = origin
          @title = title
        end

        # @return [String]
        def to_html
          Document.html("history.html", styles: %w[page.css history.css], scripts: %w[common.js history.js],
            title: @title,
            data: {"least" => History::Steps::LEAST, "groups" => @groups.map { |group| group_of(group) }})
        end

        # @param path [String] its folder is made where it is missing
        # @return [void]
        # @raise [Error] when the file cannot be written
        def write(path) = Document.write(path, to_html)

        private

        def group_of(group)
          {
            "title" => group.title,
            "runs" => group.entries.map { |entry| run_of(entry) },
            "figures" => group.lines.map { |line| line_of(group, line) },
            "ratios" => group.lines(ratios: true).map { |line| line_of(group, line) }
          }
        end

        def run_of(entry)
          {"label" => entry.label, "started" => entry["started_at"],
           "committed" => entry["revision"]["committed_at"]}.compact
        end

        def line_of(group, line)
          {
            "metric" => line.title, "measure" => line.measure, "case" => line.name, "model" => line.model,
            "better" => line.case["better"] || line.metric["better"],
            "figures" => line.figures.map { |figure| shorten(figure) }, "floor" => line.floor,
            "levels" => line.levels.map { |places| [places.first, places.last, shorten(line.level(places))] },
            "steps" => line.steps.map { |step| step_of(group, line, step) },
            "drift" => shorten(line.drift), "enough" => line.enough?
          }.compact
        end

        def step_of(group, line, step)
          runs = group.entries.values_at(step.before, step.after)
          {
            "before" => step.before, "after" => step.after, "from" => shorten(step.from), "to" => shorten(step.to),
            "ratio" => shorten(step.ratio), "verdict" => step.verdict, "range" => @origin.range(*runs),
            "commits" => @origin.commits(*runs), "url" => @origin.url(*runs), "changes" => group.changes(step, line)
          }.compact
        end

        def shorten(number) = number && Float(format("%.#{DIGITS}g", number))
      end
    end
  end
end

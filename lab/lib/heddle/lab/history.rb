# frozen_string_literal: true

module Heddle
  module Lab
    # Runs of benches over the time, and the steps in their figures.
    class History
      # Runs whose figures may be joined in a line: of one bench with the same options, one machine and one Ruby.
      class Group
        # @return [Array<Entry>] in the order of their revisions
        attr_reader :entries

        # @param entries [Array<Entry>] of one kind
        def initialize(entries)
          @entries = entries.sort_by(&:order)
          @lines = {}
        end

        # @return [String]
        def title
          machine, ruby = newest["machine"], newest["ruby"]
          "#{newest["bench"]}: #{newest["title"]}; #{ruby["ruby"][/\Aruby \S+/]}#{" +YJIT" if ruby["yjit"]}, " \
            "#{[machine["name"], machine["cpu"]].compact.join(", ")}"
        end

        # @return [Entry]
        def newest = @entries.last

        # @param ratios [Boolean] to the reference, instead of figures
        # @return [Array<Line>] by metric, case and model, as in the newest run
        def lines(ratios: false)
          @lines[ratios] ||= all("metrics", "title").product(all("cases", "name"), all("models"))
            .map { |metric, bench_case, model| Line.new(@entries, metric, bench_case, model, ratios: ratios) }
            .select(&:any?)
        end

        # What changed from one run to another beside the revision, in a line's own model and reference.
        # @param step [Line::Step]
        # @param line [Line]
        # @return [Array<String>]
        def changes(step, line)
          before, after = [step.before, step.after].map { |place| @entries[place].circumstances }
          relevant = ["kernel", "governor", "pinned", line.model, newest.reference(line.title, line.name, line.model)]
          relevant.uniq.select { |name| before[name] != after[name] }
            .map { |name| "#{name}: #{before[name] || "none"}, then #{after[name] || "none"}" }
        end

        private

        def all(list, key = nil) = @entries.reverse.flat_map { |entry| entry[list] }.uniq { |one| key ? one[key] : one }
      end

      # @param directory [String] with the files that `heddle bench NAME --record` wrote
      # @return [History]
      # @raise [Error] when there is none, or naming a file that is broken
      def self.read(directory)
        files = Dir.children(directory).grep(/\.json\z/).sort.map { |name| File.join(directory, name) }
        raise Error, "there is no run in #{directory}; heddle bench NAME --record DIR keeps one" if files.empty?

        new(files.map { |file| Entry.read(file) })
      rescue SystemCallError => error
        raise Error, "cannot read the history: #{error.message}"
      end

      # @return [Array<Group>] the one with the newest run first
      attr_reader :groups

      # @param entries [Array<Entry>]
      def initialize(entries)
        @groups = entries.group_by(&:kind).values.map { |some| Group.new(some) }
          .sort_by { |group| [*group.newest.order, group.title] }.reverse
      end
    end
  end
end

require_relative "history/steps"
require_relative "history/entry"
require_relative "history/line"
require_relative "history/origin"

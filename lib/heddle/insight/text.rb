# frozen_string_literal: true

require_relative "clean"
require_relative "snapshot"

module Heddle
  module Insight
    # A {Snapshot} as text: for Heddle.dump and for the command.
    #
    # @api private
    class Text
      NAME = 32 # characters of a name in a table
      CHAIN = 20
      DEEPEST = 300 # columns of a tree's lines
      private_constant :NAME, :CHAIN, :DEEPEST

      # @param seconds [Float, nil]
      # @return [String]
      def self.seconds(seconds)
        return "-" unless seconds
        return format("%.1f ms", seconds * 1000) if seconds < 0.1
        return format("%.3f s", seconds) if seconds < 10
        return format("%.1f s", seconds) if seconds < 600

        (seconds < 36_000) ? format("%.1f min", seconds / 60) : format("%.1f h", seconds / 3600)
      end

      # @param snapshot [Snapshot]
      def initialize(snapshot)
        @snapshot = snapshot
      end

      # @return [Array<String>] the process, its loops, a table of each loop's tasks, the pools
      def ps
        [*head, *@snapshot.loops.flat_map { |row| [loop_line(row), *table(tasks_of(row))] }, *pools]
      end

      # @return [Array<String>] each task beneath the one that started it
      def tree
        children = @snapshot.tasks.group_by { |task| known(task["parent"]) }
        lines = [*head]
        @snapshot.loops.each do |row|
          lines << loop_line(row)
          roots = (children[nil] || []).select { |task| task["loop"] == row["loop"] }
          branch(roots, children, "", lines)
        end
        lines
      end

      # @param number [Integer] of a task
      # @return [Array<String>, nil] what the task waits for, and what that waits for; nil without such a task
      def why(number)
        task = @snapshot.by_number[number] or return
        [*head, *chain(task, {}, "")]
      end

      # @return [Array<String>] the process, and what it cannot tell
      def head
        process = @snapshot.process
        program = process["program"]
        versions = "Ruby #{clean(process["ruby"])}, heddle #{clean(process["heddle"])}" if process["ruby"]
        count = @snapshot.tasks.size
        line = "process #{process["pid"]}#{" (#{clean(program)})" if program}: #{plural(count, "task")}" \
          "#{", #{versions}" if versions}"
        [line, *unanswered, *lost]
      end

      # @return [Array<String>] for the tasks: a line of titles, and one each
      def table(tasks)
        return [] if tasks.empty?

        columns = columns_for(tasks)
        rows = tasks.map { |task| [columns.map { |_, value| value.call(task) }, task] }
        widths = columns.each_index.map do |at|
          [columns[at].first, *rows.map { |row, _| row[at] }].map { |cell| Clean.width(cell) }.max
        end
        lines = rows.flat_map { |row, task| [line(row, widths), *trace(task, "    from ")] }
        [line(columns.map(&:first), widths), *lines]
      end

      # @return [String] what the task waits for, or where it stands
      def wait(task)
        text = case task["state"]
        when "running" then running(task)
        when "waiting" then task["waits_for"] || "something"
        when "ready" then "its turn"
        when "queued" then "its start"
        else ""
        end
        text = clean(text)
        text += ": #{clean(task["query"])}" if task["query"]
        text
      end

      # @param row [Hash] a loop's
      # @return [Array<Hash>] its tasks
      def tasks_of(row) = @snapshot.tasks.select { |task| task["loop"] == row["loop"] }

      # @return [String] a line
      def loop_line(row)
        doing = [plural(row["tasks"] || tasks_of(row).size, "task") + " on #{clean(row["backend"])}"]
        doing << "#{row["ready"]} ready" if row["ready"]
        doing << "sleeps for #{Text.seconds(row["asleep"])}" if row["asleep"]
        doing << "#{runner(row)} runs for #{Text.seconds(row["runs_for"])}" if row["runs"]
        "#{clean(row["thread"])}: #{doing.join(", ")}"
      end

      private

      def clean(text) = Clean.clean(text)

      def plural(count, noun) = "#{count} #{noun}#{"s" unless count == 1}"

      def known(number) = (number if @snapshot.by_number.key?(number))

      def runner(row)
        task = @snapshot.by_number[row["runs"]]
        task ? "task #{named(task)}" : "code outside of any task"
      end

      def named(task)
        task["name"] ? "#{task["task"]} #{Clean.quote(task["name"])}" : task["task"].to_s
      end

      def running(task)
        loop = @snapshot.loops.find { |row| row["loop"] == task["loop"] }
        (loop && loop["runs"] == task["task"]) ? "runs" : ""
      end

      def unanswered
        return [] if @snapshot.ruby || !@snapshot.reason

        case @snapshot.reason
        when "late"
          ["Ruby code did not answer in time, so names of locks, pools and backtraces are missing:", *suspects]
        when "missing" then ["the thread that asks Ruby code has ended, so locks, pools and backtraces are missing"]
        else ["Ruby code could not answer: #{clean(@snapshot.reason)}"]
        end
      end

      # Who may have the GVL.
      def suspects
        runs = @snapshot.loops.select { |row| row["runs"] }
        return ["  no task runs; another thread keeps the GVL"] if runs.empty?

        runs.map { |row| "  #{runner(row)} has run for #{Text.seconds(row["runs_for"])} on #{clean(row["thread"])}" }
      end

      def lost
        count = @snapshot.process["lost"]
        return [] unless count.is_a?(Integer) && count > 0

        ["#{plural(count, "task")} could not be recorded and #{(count == 1) ? "is" : "are"} missing"]
      end

      def columns_for(tasks)
        columns = [
          ["task", ->(task) { task["task"].to_s }],
          ["state", ->(task) { clean(task["state"]) }],
          ["for", ->(task) { Text.seconds(task["for"]) }]
        ]
        columns << ["deadline in", ->(task) { Text.seconds(task["left"]) }] if tasks.any? { |task| task["left"] }
        if tasks.any? { |task| task["ran"] }
          columns << ["ran", ->(task) { Text.seconds(task["ran"]) }]
          columns << ["was ready", ->(task) { Text.seconds(task["was_ready"]) }]
          columns << ["turns", ->(task) { task["turns"].to_s }]
        end
        if tasks.any? { |task| task["name"] }
          columns << ["name", ->(task) { task["name"] ? Clean.quote(task["name"], NAME) : "-" }]
        end
        columns << ["waits for", ->(task) { wait(task) }]
      end

      def line(cells, widths)
        "  #{cells.zip(widths).map { |cell, width| cell + " " * (width - Clean.width(cell)) }.join("  ")}".rstrip
      end

      def trace(task, before)
        (task["backtrace"] || []).map { |frame| "#{before}#{clean(frame)}" }
      end

      def branch(tasks, children, before, lines)
        tasks.each_with_index do |task, index|
          last = index == tasks.size - 1
          lines << "#{before}#{last ? "└─ " : "├─ "}#{named(task)} #{state(task)}"
          beneath = "#{before}#{last ? "   " : "│  "}"
          below = children[task["task"]] || []
          next lines << "#{beneath}└─ …" if below.any? && beneath.size >= DEEPEST

          branch(below, children, beneath, lines)
        end
      end

      def state(task)
        waits = wait(task)
        waits = "" if task["state"] == "running"
        "#{clean(task["state"])} for #{Text.seconds(task["for"])}#{": #{waits}" unless waits.empty?}"
      end

      def chain(task, seen, before)
        lines = ["#{before}task #{named(task)} #{state(task)}"]
        return lines << "#{before}  which this line's tasks wait for: a cycle" if seen[task["task"]] == :above
        return lines << "#{before}  see above" if seen[task["task"]]

        seen[task["task"]] = :above
        lines << "#{before}  its deadline is in #{Text.seconds(task["left"])}" if task["left"]
        lines << "#{before}  started by #{started_by(task)}"
        lines.concat(trace(task, "#{before}    from "))
        lines << "#{before}  one of these tasks may hold it:" if task["may_await"]
        (task["awaits"] || task["may_await"] || []).each do |number|
          break lines << "#{before}  …" if seen.size > CHAIN

          awaited = @snapshot.by_number[number]
          lines.concat(awaited ? chain(awaited, seen, "#{before}  ") : ["#{before}  task #{number} has ended"])
        end
        seen[task["task"]] = :told
        lines
      end

      def started_by(task)
        parent = task["parent"].to_i
        return "code outside of any task" if parent.zero?

        known(parent) ? "task #{named(@snapshot.by_number[parent])}" : "task #{parent}, which has ended"
      end

      def pools
        ruby = @snapshot.ruby || {}
        lines = %w[pools connections].flat_map { |key| Array(ruby[key]).map { |text| clean(text) } }
        [*lines, *idle_connections(ruby["idle_http_connections"]), *names(ruby["names_in_flight"]),
          *workers(ruby["workers"]), *limits(ruby)]
      end

      def idle_connections(hosts)
        return [] unless hosts.is_a?(Hash) && hosts.any?

        ["idle HTTP connections: #{hosts.map { |host, count| "#{clean(count)} to #{clean(host)}" }.join(", ")}"]
      end

      def names(found)
        some, more = found.values_at("some", "more") if found.is_a?(Hash)
        return [] unless some.is_a?(Array) && some.any? && more.is_a?(Integer)

        others = " and #{plural(more, "look-up")} more" if more > 0
        ["names in flight: #{some.map { |name| clean(name) }.join(", ")}#{others}"]
      end

      # Those that have something to do.
      def workers(uses)
        uses = uses.is_a?(Hash) ? uses.values.zip(uses.keys) : []
        uses.filter_map do |use, name|
          next unless (use in [Integer => busy, Integer => queued, limit]) && busy + queued > 0

          "worker threads for #{clean(name)}: #{busy}#{" of #{clean(limit)}" if limit} busy, " \
            "#{plural(queued, "block")} queued"
        end
      end

      def limits(ruby)
        threads, descriptors = ruby.values_at("threads", "descriptors")
        return [] unless threads.is_a?(Integer) && (descriptors in [Integer => open, Integer => most])

        ["#{plural(threads, "thread")}, #{open} of #{most} open descriptors"]
      end
    end
  end
end

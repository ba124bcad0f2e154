# frozen_string_literal: true

require_relative "kit"
require_relative "results"

module Compatibility
  # doc/compatibility.md, made from the results.
  class Page
    PATH = File.expand_path("../../doc/compatibility.md", __dir__)
    # Words of Examination#state_of. A client that raised one error and then went on did so by itself.
    STATES = {"new" => "a new one", "same" => "the same", "error, new" => "an error, then a new one",
              "error, same" => "an error, then the same", "closed" => "none: connect again",
              "wrong" => "**gives wrong answers**"}.freeze
    # What a fault is called.
    FAULTS = {at_once: "not at once", tasks: "no deadline in tasks", threads: "no deadline in threads",
              cancel: "no cancel", afterwards: "not usable afterwards", ended: "ended"}.freeze
    LATE = {tasks: "deadlines in tasks %d s late", threads: "deadlines in threads %d s late",
            cancel: "cancels %d s late"}.freeze
    private_constant :STATES, :FAULTS, :LATE

    def self.write = File.write(PATH, new.text)

    def initialize(libraries = Compatibility.libraries, results = Results.all)
      @libraries = libraries
      @results = results
    end

    # @return [Array<String>] what speaks against the data: a row that is missing, a fault without a reason, and a
    #   reason without a fault
    def complaints
      @libraries.values.flat_map do |library|
        complaints_of(library).map { |complaint| "#{library.name}: #{complaint}" }
      end
    end

    # @return [String] the page
    def text
      <<~MARKDOWN
        # Compatibility

        What becomes of requests that other libraries make in tasks of Heddle, and in plain threads inside
        `Heddle.deadline`. #{@libraries.size} libraries are used as their own documentation says, unchanged. Each is
        asked the same questions, in a process of its own, against a server behind a proxy that delays, stalls or drips
        its answers:

        - **At once**: ten tasks whose answers come after #{Examination::DELAY} s take about as long as one.
        - **Deadline**: `Heddle.deadline(1)` ends the request after #{between}, whether the server is silent,
          stops in the middle of its answer, or sends a byte each #{Between::DRIP} s. In tasks, and in plain threads.
        - **Cancel**: `Task#cancel` ends a request at once.
        - **Afterwards**: the client is used again, when its server answers again. Each answer has the number of its
          request, so that the late answer to the interrupted request is seen. The client takes a new connection, goes
          on with the same one, or has to be connected again.

        **yes** means that all of this was so, with the version beside it. Otherwise the cell says what was not, and a
        note why, and what helps. An empty cell was not measured. [The limits](limits.md) are those of Heddle itself.

        #{measured}

        `rake compatibility` measures again. A library is a file of some ten lines in `test/compatibility/libraries`.

        #{kinds.map { |kind, libraries| table(kind, libraries) }.join("\n")}
      MARKDOWN
        .chomp
    end

    private

    def complaints_of(library)
      rubies = @results.select { |results| library.runs_on?(results.ruby) }
      findings = rubies.to_h { |results| [results.ruby, results[library.name]] }
      missing = findings.select { |_, finding| finding.nil? }.keys.map { |ruby| "no row on Ruby #{ruby}" }
      doubts = findings.compact.flat_map do |ruby, finding|
        finding.doubts(library).map { |question, said| "no reason on Ruby #{ruby} why #{question}: #{said}" }
      end
      missing + doubts + needless(library, findings.values.compact)
    end

    def needless(library, findings)
      faults = findings.flat_map { |finding| finding.faults(library.questions).keys }
      faults << :any if faults.any?
      (library.reasons.keys - faults).map { |question| "no fault any more: #{question}" }
    end

    def between
      format("%.2f to %.2f s", Examination::DEADLINE - Examination::TOLERANCE,
        Examination::DEADLINE + Examination::TOLERANCE)
    end

    def measured
      @results.map do |results|
        "- Ruby #{results.ruby_version}: #{results.libraries.size} libraries, on " \
          "#{results.dates.minmax.uniq.join(" to ")}; #{results.machine}"
      end.join("\n")
    end

    def kinds = @libraries.values.group_by(&:kind).sort

    def table(kind, libraries)
      rubies = @results.map { |results| "Ruby #{results.ruby}" }
      heads = ["Library", *rubies, "After a deadline", "After a cancel", "Notes"]
      rows = libraries.sort_by { |library| library.name.downcase }.map { |library| row(library) }
      lines = [heads, heads.map { ":--" }, *rows].map { |cells| "| #{cells.join(" | ")} |".squeeze(" ") }
      "## #{kind}\n\n#{lines.join("\n")}\n"
    end

    def row(library)
      findings = @results.map { |results| results[library.name] }
      [library.name, *findings.map { |finding| finding ? verdict(library, finding) : "" },
        states(findings, "tasks", "threads"), states(findings, "cancel"), notes(library)]
    end

    def verdict(library, finding)
      faults = finding.faults(library.questions).keys.map { |question| said(question, finding) }
      [finding.version, faults.empty? ? "**yes**" : faults.join(", ")].compact.join(" ")
    end

    def said(question, finding)
      late = finding.late(question)
      late ? format(LATE.fetch(question), late.round) : FAULTS.fetch(question)
    end

    def states(findings, *questions)
      words = findings.compact.flat_map { |finding| finding.afterwards.values_at(*questions).compact.flatten }.uniq
      words.sort_by { |word| STATES.keys.index(word) }.map { |word| STATES.fetch(word) }.join("; ")
    end

    def notes(library) = (library.notes + library.reasons.values).uniq.join(" ")
  end
end
